# Finds LLVM and MLIR 22 through llvm-config and makes the target pisa_mlir.
# The C API of MLIR exists only as static archives (libMLIRCAPI*.a); what they call comes from libMLIR.so, or from the
# libMLIR*.a archives with PISA_STATIC. They are C++ inside, so the C++ runtime is named; no C++ compiler is needed.
find_program(PISA_LLVM_CONFIG NAMES llvm-config-22 llvm-config REQUIRED)
function(llvm_config variable)
  execute_process(COMMAND ${PISA_LLVM_CONFIG} ${ARGN} OUTPUT_VARIABLE out
                  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  set(${variable} "${out}" PARENT_SCOPE)
endfunction()
llvm_config(PISA_LLVM_VERSION --version)
llvm_config(llvm_include --includedir)
llvm_config(llvm_lib --libdir)
if(NOT PISA_LLVM_VERSION MATCHES "^22\\.")
  message(FATAL_ERROR "pisac needs LLVM and MLIR 22; ${PISA_LLVM_CONFIG} is ${PISA_LLVM_VERSION}")
endif()
if(NOT EXISTS ${llvm_include}/mlir-c/IR.h)
  message(FATAL_ERROR "the MLIR headers are missing (Debian: libmlir-22-dev)")
endif()

set(MLIR_INCLUDE_DIRS ${llvm_include})
set(LLVM_INCLUDE_DIRS ${llvm_include})
add_library(pisa_mlir INTERFACE)
target_include_directories(pisa_mlir SYSTEM INTERFACE ${llvm_include})
target_compile_definitions(pisa_mlir INTERFACE PISA_LLVM_VERSION="${PISA_LLVM_VERSION}")

set(capi)
foreach(part Arith ControlFlow Conversion IR IRDL LLVM NVVM SCF Target)
  list(APPEND capi ${llvm_lib}/libMLIRCAPI${part}.a)
endforeach()
if(PISA_STATIC)
  execute_process(COMMAND ${CMAKE_C_COMPILER} -print-file-name=libstdc++.a OUTPUT_VARIABLE libstdcxx
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT EXISTS ${libstdcxx})
    message(FATAL_ERROR "PISA_STATIC needs libstdc++.a (Debian: libstdc++-12-dev)")
  endif()
  file(GLOB mlir ${llvm_lib}/libMLIR*.a)
  list(FILTER mlir EXCLUDE REGEX "libMLIR(CAPI|.*Test|.*RegisterAll)")
  llvm_config(llvm_archives --link-static --libs nvptx core support passes analysis target)
  separate_arguments(llvm_archives)
  target_link_directories(pisa_mlir INTERFACE ${llvm_lib})
  target_link_options(pisa_mlir INTERFACE -static-libgcc -Wl,--gc-sections -s)
  target_link_libraries(pisa_mlir INTERFACE -Wl,--start-group ${capi} ${mlir} -Wl,--end-group
                        ${llvm_archives} -Wl,-Bstatic -lstdc++ -lz -lzstd -Wl,-Bdynamic -lpthread -ldl -lm)
else()
  find_library(PISA_MLIR_LIBRARY MLIR PATHS ${llvm_lib} NO_DEFAULT_PATH REQUIRED)
  find_library(PISA_LLVM_LIBRARY NAMES LLVM LLVM-22 PATHS ${llvm_lib} NO_DEFAULT_PATH REQUIRED)
  # libstdc++.so.6 by its file name: the development link exists only beside a C++ compiler.
  target_link_libraries(pisa_mlir INTERFACE -Wl,--start-group ${capi} -Wl,--end-group
                        ${PISA_MLIR_LIBRARY} ${PISA_LLVM_LIBRARY} -l:libstdc++.so.6 -lm)
endif()
