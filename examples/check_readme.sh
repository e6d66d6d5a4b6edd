#!/usr/bin/env bash
# The first C++ block of README.md is the marked region of examples/quickstart.cc, without its indentation.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."

example=$(sed -n '/^ *\/\/ \[readme\]$/,/^ *\/\/ \[readme end\]$/p' examples/quickstart.cc | sed '1d;$d;s/^  //')
shown=$(awk '/^```cpp$/ { inside = 1; next } /^```$/ { if (inside) exit } inside' README.md)
[[ -n $example ]] || { echo "examples/quickstart.cc has no region between [readme] and [readme end]" >&2; exit 1; }
diff -u --label examples/quickstart.cc --label README.md <(echo "$example") <(echo "$shown")
