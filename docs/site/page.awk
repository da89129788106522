# page.awk -v docs=FOLDER: a Markdown page in, the same lines out for Doxygen: headings get labels that GitHub's anchors are
# turned into, so that Doxygen checks every link; what is not on the site is no link; fences have a language that it knows.
function slug(title) {
  title = tolower(title)
  gsub(/[^a-z0-9 _-]/, "", title)
  gsub(/ /, "-", title)
  return title
}
function label(page) { # docs/a/README.md: a; docs/b.md: b; the front page: index
  sub(/(\/?README)?\.md$/, "", page)
  gsub(/\//, "-", page)
  return page == "" ? "index" : "page-" page
}
function resolve(path,   parts, n, i, out, depth) { # from the folder of this page to docs; what is outside begins with ".."
  n = split(folder path, parts, "/")
  for (i = 1; i <= n; i++) {
    if (parts[i] == ".." && depth && out[depth] != "..")
      depth--
    else if (parts[i] != "" && parts[i] != ".")
      out[++depth] = parts[i]
  }
  path = out[1]
  for (i = 2; i <= depth; i++)
    path = path "/" out[i]
  return path
}
function target(link, text,   path, heading) {
  if (link ~ /^https?:/)
    return "[" text "](" link ")"
  heading = link
  if (!sub(/^[^#]*#/, "", heading))
    heading = ""
  path = link
  sub(/#.*/, "", path)
  path = path == "" ? me : resolve(path)
  if (path == "../runtime/pisa.h")
    return "[" text "](@ref pisa.h)"
  if (path !~ /\.md$/ && (getline ignored < (docs "/" path "/README.md")) > 0)
    path = path "/README.md"
  if (path ~ /^(\.\.|site|drawings)\// || path !~ /\.md$/) # as EXCLUDE_PATTERNS says
    return text
  return "[" text "](@ref " label(path) (heading == "" ? "" : "-" heading) ")"
}
function linked(line,   out, open, link, text, picture) {
  while (match(line, /\[[^][]*\]\([^() ]+\)/)) {
    text = link = substr(line, RSTART, RLENGTH)
    sub(/\]\([^()]*\)$/, "", text)
    sub(/^\[/, "", text)
    sub(/^.*\]\(/, "", link)
    sub(/\)$/, "", link)
    picture = RSTART > 1 && substr(line, RSTART - 1, 1) == "!"
    out = out substr(line, 1, RSTART - 1)
    line = substr(line, RSTART + RLENGTH)
    if (picture)
      sub(/^.*\//, "", link)
    out = out (picture ? "[" text "](" link ")" : target(link, text))
  }
  return out line
}
FNR == 1 {
  me = substr(FILENAME, length(docs) + 2)
  folder = me
  sub(/[^\/]*$/, "", folder)
}
/^<!-- [a-z ]+: run by / { print ""; next }
/^```/ {
  fenced = !fenced
  if (fenced)
    $0 = "```" ($1 ~ /python$/ ? "py" : $1 ~ /^```c$/ ? "c" : "")
  print
  next
}
fenced { print; next }
/^#+ / {
  title = $0
  sub(/^#+ /, "", title)
  top = /^# /
  if (!(top && me == "README.md"))
    $0 = $0 " {#" label(me) (top ? "" : "-" slug(title)) "}"
}
{ print linked($0) }
