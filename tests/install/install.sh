#!/bin/sh
# install.sh BUILD WORK SOURCE CMAKE: installs BUILD and builds the example application against it, out of tree: with
# find_package, with pkg-config, as C++; runs it, looks at the man pages and tries the completion.
set -eu
build=$1 work=$2 source=$3 cmake=$4 prefix=$2/prefix
fail() {
  echo "install.sh: $*" >&2
  exit 1
}
rm -rf "$work"
mkdir -p "$work"
"$cmake" --install "$build" --prefix "$prefix" >"$work/install.log"

"$cmake" -S "$source/docs/examples/app" -B "$work/app" -DCMAKE_PREFIX_PATH="$prefix" \
  -DCMAKE_C_FLAGS="-Wall -Wextra -Wpedantic -Werror" >"$work/app.log" 2>&1 || fail "$(cat "$work/app.log")"
"$cmake" --build "$work/app" >"$work/app.log" 2>&1 || fail "$(cat "$work/app.log")"
pack=$prefix/share/pisa/packs/flux1_dev.pack
said=$("$work/app/app" "$pack" 130)
case $said in
"flux1_dev: o[0] = 0x"*", 130 tokens, pisa "*) ;;
*) fail "the application says '$said'" ;;
esac
[ "$said" = "$("$work/app/app" "$pack" 130)" ] || fail "two runs differ"
! "$work/app/app" /dev/null 2>"$work/error" || fail "an empty pack is taken"
grep -q "app: .*/dev/null" "$work/error" || fail "no word about the pack: $(cat "$work/error")"

if command -v pkg-config >/dev/null; then
  PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name pisa.pc)")
  export PKG_CONFIG_PATH
  # shellcheck disable=SC2046 # flags
  cc "$source/docs/examples/app/app.c" $(pkg-config --cflags --libs pisa) -o "$work/app_pc"
  LD_LIBRARY_PATH=$(pkg-config --variable=libdir pisa) "$work/app_pc" "$pack" 130 >/dev/null
else
  echo "pkg-config is not there: pisa.pc is not tried"
fi

# A pack as C source, in the application of docs/embedding.md.
if [ -x "$prefix/bin/pisac" ]; then
  "$prefix/bin/pisac" build "$source/specs/hybrid.pisa" --no-ptxas --format c --name flux -o "$work/flux" 2>"$work/log" ||
    fail "$(cat "$work/log")"
  "$source/tests/readme/fence.sh" "c app.c" "$source/docs/embedding.md" >"$work/embedded.c"
  libraries=$(dirname "$(find "$prefix" -name libpisa.so)")
  cc -Wall -Wextra -Wpedantic -Werror -I"$(dirname "$(find "$prefix" -name pisa.h)")" "$work/embedded.c" "$work/flux.c" \
    -L"$libraries" -lpisa -o "$work/embedded"
  said=$(LD_LIBRARY_PATH=$libraries "$work/embedded")
  [ "$said" = "24 heads of 128, o[0] = 0" ] || fail "the application of docs/embedding.md says '$said'"
fi

include=$(dirname "$(find "$prefix/include" -name pisa.h)")
printf '#include <pisa.h>\nint main(void) { return pisa_version() == 0; }\n' >"$work/header.c"
cc -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I"$include" "$work/header.c" || fail "the header as C"
if command -v c++ >/dev/null; then
  c++ -x c++ -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I"$include" "$work/header.c" || fail "the header as C++"
else
  echo "there is no C++ compiler: the header is not tried as C++"
fi

for program in "$prefix"/bin/*; do
  name=$(basename "$program")
  page=$(find "$prefix" -path "*/man1/$name.1")
  [ -s "$page" ] || fail "no man page of $name"
  for command in $("$program" --help | sed -n 's/^  \([a-z][a-z]*\)  .*/\1/p'); do
    grep -q "^\.SH $name $command\$" "$page" || fail "the man page of $name does not tell of $command"
  done
  [ -s "$prefix/share/bash-completion/completions/$name" ] || fail "no completion of $name"
done
complete_words() { # PROGRAM WORD...: what bash offers for the last one
  bash -c '. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _pisa "$1"; echo "${COMPREPLY[*]}"' \
    bash "$prefix/share/bash-completion/completions/pisa" "$@"
}
if command -v bash >/dev/null; then
  [ "$(complete_words "$prefix/bin/pisa" ver)" = verify ] || fail "completion of a command"
  [ "$(complete_words "$prefix/bin/pisa" run --blocks-)" = --blocks-in ] || fail "completion of an option"
fi
