#!/bin/sh
# header.sh SOURCE_DIR CC [CXX]: pisa.h compiles by itself, without warnings, as C11 and as C++.
set -eu
source=$1 cc=$2 cxx=${3:-}
warnings='-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror'
echo '#include "runtime/pisa.h"' | "$cc" -I"$source" -std=c11 -Wstrict-prototypes $warnings -x c -fsyntax-only -
[ -n "$cxx" ] || { echo 'no C++ compiler: only C was tried'; exit 0; }
echo '#include "runtime/pisa.h"' | "$cxx" -I"$source" $warnings -x c++ -fsyntax-only -
