#!/usr/bin/env bash
# The C++ blocks of README.md are the marked regions of the examples, in this order, without their indentation.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."

number=0
for example in examples/quickstart.cc examples/embed.cpp; do
  number=$((number + 1))
  region=$(sed -n '/^ *\/\/ \[readme\]$/,/^ *\/\/ \[readme end\]$/p' "$example" | sed '1d;$d;s/^  //')
  shown=$(awk -v number=$number '/^```cpp$/ { block++; inside = block == number; next }
                                 /^```$/ { inside = 0 } inside' README.md)
  [[ -n $region ]] || { echo "$example has no region between [readme] and [readme end]" >&2; exit 1; }
  diff -u --label "$example" --label "README.md, C++ block $number" <(echo "$region") <(echo "$shown")
done
blocks=$(grep -c '^```cpp$' README.md)
[[ $blocks == "$number" ]] || { echo "README.md has $blocks C++ blocks; $number come from examples" >&2; exit 1; }
