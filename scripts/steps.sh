# Sourced by the scripts at the root and in .ci: one printed line for each step, its output only if it fails.
# shellcheck shell=bash

# ccache is used where it is installed. CMake reads this when a build folder is configured for the first time.
if [[ -z ${CMAKE_CXX_COMPILER_LAUNCHER:-} ]] && command -v ccache >/dev/null; then
  export CMAKE_CXX_COMPILER_LAUNCHER=ccache
fi

# step LABEL COMMAND...: prints the label and the seconds taken, on standard error; exits if the command fails.
step() {
  local label=$1 log start status=0
  shift
  log=$(mktemp)
  start=$EPOCHREALTIME
  printf '%-44s' "$label" >&2
  "$@" >"$log" 2>&1 </dev/null || status=$?
  printf '%8s s\n' "$(seconds_since "$start")" >&2
  if ((status != 0)); then
    cat "$log" >&2
    printf '%s: failed with status %d: %s\n' "$label" "$status" "$*" >&2
  fi
  rm -f "$log"
  if ((status != 0)); then
    exit "$status"
  fi
}

# seconds_since START: with one decimal place. START is an earlier $EPOCHREALTIME.
seconds_since() {
  local now=$EPOCHREALTIME
  local tenths=$(((${now/[.,]/} - ${1/[.,]/}) / 100000))
  printf '%d.%d' $((tenths / 10)) $((tenths % 10))
}

# build PRESET [TARGET...]: configures and builds; all targets if none is named.
build() {
  local preset=$1
  shift
  step "configure $preset" cmake --preset "$preset"
  step "build $preset" cmake --build --preset "$preset" ${1:+--target "$@"}
}
