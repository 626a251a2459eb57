#!/usr/bin/env bash
# Installs the build into an empty prefix, builds examples/continue_text against it with nothing but find_package(glint), and
# runs it and the installed program on the installed model.
# Usage: installed_package.sh CMAKE SOURCE_DIR BINARY_DIR CXX SANITIZE
set -euo pipefail
cmake=$1 source=$2 build=$3 cxx=$4 sanitize=$5
compgen -G "$source/models/*/*.gguf" >/dev/null || { echo 'no embedded model in models/'; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$cmake" --install "$build" --prefix "$work/prefix" >/dev/null
# Nothing internal is installed: the public headers are the whole interface.
others=$(find "$work/prefix" -name '*.h' -not -path '*/include/glint/*')
[[ -z $others ]] || { echo "headers outside include/glint: $others"; exit 1; }
"$work/prefix/bin/glint" --version

flags=${sanitize:+-fsanitize=$sanitize}
"$cmake" -S "$source/examples/continue_text" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" \
  -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_CXX_FLAGS="$flags" -DCMAKE_BUILD_TYPE=Release
"$cmake" --build "$work/build"

model=$(find "$work/prefix/share/glint/models" -name '*.gguf' 2>/dev/null | head -1)
[[ -n $model ]] || { echo 'the embedded model was not installed'; exit 1; }
[[ -s $(dirname "$model")/README.md ]] || { echo 'the embedded model came without its note on sources and licences'; exit 1; }
text=$("$work/build/continue_text" "$model" 'Once upon a time')
echo "$text"
[[ $(wc -w <<<"$text") -ge 10 ]] || { echo 'the example wrote hardly anything'; exit 1; }
# The installed program finds the installed model by itself.
cd "$work"
[[ -n $(prefix/bin/glint run 'Once upon a time' -n 8 </dev/null) ]]
prefix/bin/glint inspect | grep -qF "$work/prefix/share/glint/models" || { echo 'it took another model'; exit 1; }
