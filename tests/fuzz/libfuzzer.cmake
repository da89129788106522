# Sets FUZZ_COMPILER (a clang) and PISA_HAS_LIBFUZZER, whether it can link libFuzzer; FUZZ_FLAGS are its flags.
set(FUZZ_FLAGS -O1 -g -std=c11 -D_POSIX_C_SOURCE=200809L -I${CMAKE_SOURCE_DIR} -fsanitize=fuzzer,address,undefined
               -fno-sanitize-recover=all)
find_program(FUZZ_COMPILER NAMES clang clang-22 clang-14)
if(FUZZ_COMPILER AND NOT DEFINED PISA_HAS_LIBFUZZER)
  file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/try_fuzz.c
       "int LLVMFuzzerTestOneInput(const char *d, unsigned long n);\n"
       "int LLVMFuzzerTestOneInput(const char *d, unsigned long n) { return d && n > 9999; }\n")
  execute_process(COMMAND ${FUZZ_COMPILER} ${FUZZ_FLAGS} try_fuzz.c -o try_fuzz
                  WORKING_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR} RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
  string(COMPARE EQUAL "${failed}" 0 works)
  set(PISA_HAS_LIBFUZZER ${works} CACHE INTERNAL "FUZZ_COMPILER can link libFuzzer")
endif()
