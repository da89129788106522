# cmake -DINPUT=file -DOUTPUT=file.c -DNAME=identifier -P embed.cmake: the bytes of a file as a C string.
file(READ ${INPUT} hex HEX)
string(REGEX REPLACE "(................................)" "\\1\n" lines "${hex}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${lines}")
file(WRITE ${OUTPUT} "extern const char ${NAME}[];\nconst char ${NAME}[] = {\n${bytes}0};\n")
