#!/usr/bin/env bash
# Runs the README's examples: each fenced block after a line `<!-- tested -->`, in one folder that has only models/, with the built glint on PATH.
# Usage: readme_examples.sh README.md GLINT
set -euo pipefail
readme=$(realpath "$1") glint=$(realpath "$2")
compgen -G "$(dirname "$readme")/models/*/*.gguf" >/dev/null || { echo 'no embedded model in models/'; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
awk -v out="$work/block-" '
  /^<!-- tested -->$/ { armed = 1; next }
  /^```/ { if (inside) { inside = 0 } else if (armed) { inside = 1; armed = 0; ++n }; next }
  inside { print > (out n ".sh") }' "$readme"
blocks=("$work"/block-*.sh)
[[ -e ${blocks[0]} ]] || { echo "no tested block in $readme"; exit 1; }

mkdir "$work/bin" "$work/cwd"
ln -s "$glint" "$work/bin/glint"
ln -s "$(dirname "$readme")/models" "$work/cwd/models"  # some name it as seen from the repository's root
cd "$work/cwd"
for block in "${blocks[@]}"; do
  echo "--- $block"; cat "$block"
  PATH="$work/bin:$PATH" bash -euo pipefail "$block" </dev/null || { echo "FAILED: the block above (exit $?)"; exit 1; }
done
