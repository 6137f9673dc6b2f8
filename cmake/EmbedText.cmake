# cmake -DINPUT=file -DOUTPUT=file.cc -DHEADER=include -DNAME=kName -P this
# Makes a C++ file that defines `const char skrull::cli::kName[]`: the text of
# INPUT. A raw string holds it, in pieces that every compiler takes.
file(READ ${INPUT} text)
string(LENGTH "${text}" length)
set(pieces "")
set(at 0)
while(at LESS length)
  string(SUBSTRING "${text}" ${at} 8000 piece)
  string(APPEND pieces "R\"skrull_text(${piece})skrull_text\"\n")
  math(EXPR at "${at} + 8000")
endwhile()
file(WRITE ${OUTPUT} "#include \"${HEADER}\"
namespace skrull::cli {
const char ${NAME}[] =
${pieces};
}  // namespace skrull::cli
")
