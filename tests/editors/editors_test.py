"""editors_test.py words|vscode|vim WORDS_PROGRAM SOURCE: the syntax files of docs/editors. `words`: they have the words of the
language, which WORDS_PROGRAM prints, and no others; `vscode`: the extension's files fit together, and its grammar tells what every
word of the specs is; `vim`: so does Vim, and says the same (77 where there is no vim)."""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

KINDS = ("clause", "field", "value")
SCOPES = {  # of the grammar, and the groups of Vim
    "comment.line.number-sign.pisa": "pisaComment",
    "storage.type.pisa": "pisaSpec",
    "entity.name.type.pisa": "pisaName",
    "keyword.control.pisa": "pisaClause",
    "support.type.property-name.pisa": "pisaField",
    "constant.language.pisa": "pisaValue",
    "constant.numeric.pisa": "pisaNumber",
    "punctuation.separator.pisa": "pisaDelimiter",
}
HYBRID = {  # words of specs/hybrid.pisa: line of the code behind the comments, word, group
    ("spec hybrid {", "spec"): "pisaSpec",
    ("spec hybrid {", "hybrid"): "pisaName",
    ("target sm_90a", "target"): "pisaClause",
    ("target sm_90a", "sm_90a"): "pisaValue",
    ("shape  {", "heads"): "pisaField",
    ("shape  {", "24"): "pisaNumber",
    ("shape  {", "mask"): "pisaField",
    ("shape  {", "none"): "pisaValue",
    ("route  top_k", "route"): "pisaClause",
    ("route  top_k", "top_k"): "pisaValue",
    ("route  top_k", "0.125"): "pisaNumber",
    ("route  top_k", "covariance"): "pisaValue",
    ("attend {", "rest"): "pisaField",
    ("attend {", "hybrid"): "pisaValue",
    ("# One choice", "choice"): "pisaComment",
}


def language(program, source):
    """{kind: words}, from the tables of dsl/ and, for what is reserved, from its lexer."""
    found = {kind: set() for kind in KINDS}
    for line in subprocess.run([program], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines():
        kind, word = line.split()
        found[kind].add(word)
    assert all(len(found[kind]) > 10 for kind in KINDS), found
    lexer = (source / "dsl/lexer.l").read_text(encoding="utf-8")
    found["reserved"] = set(re.findall(r'^"([a-z]+)"\s', lexer, re.M))
    return found


def vim_words(source):
    text = (source / "docs/editors/vim/syntax/pisa.vim").read_text(encoding="utf-8")
    text = re.sub(r"'\n\s*\\ \. '", "", text)
    found = {kind: re.search(rf"^let s:{kind}s = '([^'\n]*)'$", text, re.M)[1].split() for kind in KINDS}
    found["reserved"] = re.findall(r'pisaSpec "\\<(\w+)\\>"', text)
    return found


def grammar(source):
    path = source / "docs/editors/vscode/syntaxes/pisa.tmLanguage.json"
    return json.loads(path.read_text(encoding="utf-8"))


def vscode_words(source):
    names = dict(zip(("keyword.control.pisa", "support.type.property-name.pisa", "constant.language.pisa"), KINDS))
    names["storage.type.pisa"] = "reserved"
    found = {}
    for pattern in grammar(source)["patterns"]:
        scopes = [pattern.get("name")] + [capture["name"] for capture in pattern.get("captures", {}).values()]
        for scope in scopes:
            if scope in names:
                found[names[scope]] = re.search(r"\\b\(([a-z0-9_|]+)\)\\b", pattern["match"])[1].split("|")
    return found


def check_words(program, source):
    wanted = language(program, source)
    assert not wanted["clause"] & wanted["field"], "a word would be of two kinds where a statement begins"
    for editor, found in (("vim", vim_words(source)), ("vscode", vscode_words(source))):
        for kind, words in wanted.items():
            assert len(found[kind]) == len(set(found[kind])), f"{editor}: a {kind} twice"
            missing, foreign = words - set(found[kind]), set(found[kind]) - words
            assert not missing, f"{editor}: {kind} words missing: {sorted(missing)}"
            assert not foreign, f"{editor}: {kind} words that the language has not: {sorted(foreign)}"


def scopes_of(line, patterns):
    """[(begin, end, scope)] of a line, as an editor finds them: the leftmost match, then the pattern listed first."""
    found, at = [], 0
    while at < len(line):
        matches = [(m.start(), i, m) for i, (regex, _, _) in enumerate(patterns) if (m := regex.search(line, at)) and m.end() > m.start()]
        if not matches:
            break
        _, i, match = min(matches, key=lambda x: x[:2])
        _, name, captures = patterns[i]
        if name:
            found.append((match.start(), match.end(), name))
        found += [(*match.span(int(n)), c["name"]) for n, c in captures.items() if match.span(int(n)) != (-1, -1)]
        at = match.end()
    return found


def compiled(source):
    return [(re.compile(p["match"]), p.get("name"), p.get("captures", {})) for p in grammar(source)["patterns"]]


def groups_of(path, patterns):
    """{(line, column): group} for every word and number of a spec."""
    found = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        scopes = scopes_of(line, patterns)
        for word in re.finditer(r"[A-Za-z0-9_]+", line):
            inside = [scope for begin, end, scope in scopes if begin <= word.start() < end]
            found[number, word.start() + 1] = SCOPES[inside[-1]] if inside else ""
    return found


def specs(source):
    paths = sorted((source / "specs").glob("*.pisa")) + sorted((source / "tests/compiler/specs").glob("*.pisa"))
    assert len(paths) > 30
    return paths


def check_hybrid(source, groups):
    lines = (source / "specs/hybrid.pisa").read_text(encoding="utf-8").splitlines()
    for (start, word), group in HYBRID.items():
        row = next(i for i, line in enumerate(lines) if line.strip().startswith(start))
        column = [m.start() for m in re.finditer(rf"(?<![\w.]){re.escape(word)}(?!\w)", lines[row])][-1]
        assert groups[row + 1, column + 1] == group, f"{word} of `{start}` is {groups[row + 1, column + 1]}, not {group}"


def check_vscode(_, source):
    extension = source / "docs/editors/vscode"
    for path in sorted(extension.rglob("*.json")):
        json.loads(path.read_text(encoding="utf-8"))
    package = json.loads((extension / "package.json").read_text(encoding="utf-8"))
    version = re.search(r"project\(pisa VERSION ([0-9.]+)", (source / "CMakeLists.txt").read_text(encoding="utf-8"))[1]
    assert package["version"] == version, "the extension has not the version of pisa"
    assert f"pisa.pisa-{version}" in (extension / "README.md").read_text(encoding="utf-8")
    (tongue,), (rules,) = package["contributes"]["languages"], package["contributes"]["grammars"]
    assert tongue["id"] == rules["language"] and tongue["extensions"] == [".pisa"]
    for path in (tongue["configuration"], rules["path"]):
        assert (extension / path).exists(), path
    assert rules["scopeName"] == grammar(source)["scopeName"]
    settings = json.loads((extension / "language-configuration.json").read_text(encoding="utf-8"))
    for pattern in settings["indentationRules"].values():
        re.compile(pattern)
    assert settings["comments"]["lineComment"] == "#"

    patterns = compiled(source)
    check_hybrid(source, groups_of(source / "specs/hybrid.pisa", patterns))
    for path in specs(source):
        unknown = [place for place, group in groups_of(path, patterns).items() if not group]
        assert not unknown, f"{path}: words that are nothing, at {unknown}"


def check_vim(_, source):
    if not shutil.which("vim"):
        print("there is no vim here")
        sys.exit(77)
    paths, patterns = specs(source), compiled(source)
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "groups"
        command = ["vim", "-es", "-N", "-u", "NONE", "-i", "NONE", "--cmd", f"set runtimepath^={source}/docs/editors/vim"]
        command += ["--cmd", "filetype on | syntax on", "--cmd", f"let g:out = '{out}'"]
        command += ["-S", str(source / "tests/editors/groups.vim"), *map(str, paths)]
        subprocess.run(command, stdin=subprocess.DEVNULL, check=False, timeout=60)
        lines = out.read_text(encoding="utf-8").splitlines()
    seen = {str(path): {} for path in paths}
    for line in lines:
        place, _, group = line.partition(" ")
        if group.startswith("filetype"):
            assert group == "filetype pisa", line
            continue
        path, row, column = place.rsplit(":", 2)
        seen[path][int(row), int(column)] = group
    check_hybrid(source, seen[str(source / "specs/hybrid.pisa")])
    for path in paths:
        wanted = groups_of(path, patterns)
        other = {place: (group, wanted.get(place)) for place, group in seen[str(path)].items() if group != wanted.get(place)}
        assert len(wanted) == len(seen[str(path)]) > 10, path
        assert not other, f"{path}: Vim and the grammar differ at {other}"


def main():
    case, program, source = sys.argv[1:4]
    checks = {"words": check_words, "vscode": check_vscode, "vim": check_vim}
    checks[case](program, pathlib.Path(source))


if __name__ == "__main__":
    main()
