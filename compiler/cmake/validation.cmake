# cmake -DINPUT=validation.json -DOUTPUT=file.c -P validation.cmake: its digests as a sorted C table.
file(READ ${INPUT} json)
string(JSON n LENGTH "${json}" passed)
set(digests)
if(n GREATER 0)
  math(EXPR last "${n} - 1")
  foreach(i RANGE ${last})
    string(JSON digest GET "${json}" passed ${i} sha256)
    if(NOT digest MATCHES "^[0-9a-f]+$")
      message(FATAL_ERROR "${INPUT}: passed[${i}].sha256 is '${digest}'")
    endif()
    list(APPEND digests ${digest})
  endforeach()
  list(SORT digests)
  list(REMOVE_DUPLICATES digests)
endif()
list(LENGTH digests n)
list(TRANSFORM digests REPLACE "(.+)" "    \"\\1\",\n")
list(JOIN digests "" rows)
file(WRITE ${OUTPUT} "/* generated from docs/results/validation.json */
#include \"compiler/pack/validation.h\"

const int n_validated_digests = ${n};
const char *const validated_digests[] = {
${rows}    0,
};
")
