# header.awk: pisa.h in, the same lines out with plain comments as Doxygen's. `/* ---- title ----` begins a group.
# A declaration of two members with one comment becomes two with that comment.
function close_group() {
  if (grouped)
    printf "/** @} */ "
  grouped = 1
}
NR == 1 { sub(/^\/\* /, "/** "); first = 1 }
first && /\*\/$/ { sub(/\*\/$/, "@file */"); first = 0 }
/^\/\* ---- / {
  close_group()
  whole = /\*\/$/
  gsub(/^\/\* -+ | *-+( \*\/)?$/, "")
  printf "/** @name %s%s", $0, whole ? " */ /** @{ */\n" : "\n"
  telling = !whole
  next
}
telling && /\*\/$/ { $0 = $0 " /** @{ */"; telling = 0 }
/^}/ && /extern/ || /^#ifdef __cplusplus/ && grouped && !ended++ { close_group() }
{
  gsub(/\|[A-Za-z_>.-]+\|/, "`&`")
  gsub(/`\||\|`/, "`")
  $0 = gensub_pair($0)
  if (!sub(/^ *\/\* /, "&*")) # a comment of its own, before what it is about
    sub(/([;,{0-9]|^#define.*[^ ]) +\/\* /, "&*<")
  sub(/\/\* \*< ?/, "/**< ")
  sub(/\/\* \*/, "/** ")
  print
}
# "  T a, *b; /* c */" as "  T a; /* c */ T *b; /**< c */"; without c of its own the second is said to be like the first.
function gensub_pair(line,   parts, type, comment, names) {
  if (line !~ /^  [a-z0-9_ ]+ \**[a-z_]+, \**[a-z_]+;/)
    return line
  comment = line
  sub(/^[^;]*; */, "", comment)
  names = line
  sub(/;.*/, "", names)
  split(names, parts, /, /)
  type = parts[1]
  sub(/ \**[a-z_]+$/, "", type)
  if (comment == "")
    return parts[1] "; " type " " parts[2] "; /* with the one before */"
  sub(/^\/\*/, "/**<", comment)
  return parts[1] "; " comment " " type " " parts[2] "; " comment
}
