#!/bin/sh
# options.sh PISAC: command lines that make no sense, and what pisac answers: status 1 and a sentence.
set -u
pisac=$1
status=0
refuses() { # refuses SENTENCE ARGS...
  sentence=$1
  shift
  said=$("$pisac" "$@" 2>&1 >/dev/null)
  code=$?
  case $said in
  *"$sentence"*) [ "$code" = 1 ] && return ;;
  esac
  echo "pisac $*: status $code, said: $said"
  echo "  expected: $sentence"
  status=1
}
spec=specs/hybrid.pisa

refuses "no command"
refuses "unknown command 'biuld'; did you mean 'build'?" biuld $spec
refuses "unknown command 'xyzzy'" xyzzy
refuses "unknown option '--versoin'; did you mean '--version'?" --versoin
refuses "unknown option '--tokns'; did you mean '--tokens'?" explain --tokns 5 $spec
refuses "unknown option '--json'" build --json $spec
refuses "unknown stage 'ptxx'; did you mean 'ptx'?" emit --stage ptxx $spec
refuses "emit takes --stage STAGE" emit $spec
refuses "--stage takes STAGE" emit $spec --stage
refuses "build takes a spec file" build
refuses "one spec at a time" build $spec $spec
refuses "--set takes NAME=VALUE, found 'density'" build $spec --set density
refuses "--tokens takes a whole number" explain $spec --tokens many
refuses "--tokens takes a whole number" explain $spec --tokens 0
refuses "unknown format 'C'; there are pack and c" build $spec --format C
refuses "--format takes FORMAT" build $spec --format
refuses "unknown option '--format'" check $spec --format c
refuses "--name goes with --format c" build $spec --name flux
refuses "'9x' must be letters, digits and '_', a letter first" build $spec --format c --name 9x
refuses "'_x' must be letters" build $spec --format c --name _x
refuses "'fl-ux' must be letters" build $spec --format c --name fl-ux
refuses "'' must be letters" build $spec --format c --name=
refuses "'double' is a word of C or C++" build $spec --format c --name double
refuses "'pisa_pack' belongs to pisa.h" build $spec --format c --name pisa_pack
refuses "has more than 64 letters" build $spec --format c \
  --name a2345678901234567890123456789012345678901234567890123456789012345
refuses "-o: 'a\"b' cannot be included" build $spec --format c -o 'a"b'
refuses "specs/short.pisa:2:6: error: 'short' is a word of C or C++: give the pair a name with --name" \
  build specs/short.pisa --format c -o no_such_folder/x
refuses "--json takes no value" check $spec --json=yes
refuses "cannot change 'densty'" build $spec --set densty=0.5
for command in explain build; do # legal, but nothing that can be built: shown in the option that set it
  refuses "--set:1:11: error: half_tile on cannot be built yet: kernels with half tiles exist for query 128 and key 64
    half_tile=on
              ^^" $command $spec --set half_tile=on --set query=64
  refuses "--set:1:11: error: half_tile on" $command $spec --set query=64 --set half_tile=on
  refuses "--set:1:7: error: lists union cannot be built yet" $command $spec --set density=0.2 --set lists=union
done

# what goes with no setting is left out and named; settings that do not go together leave nothing
for order in "rest=drop --set mass=second_order" "mass=second_order --set rest=drop"; do
  refuses "error: \`mass second_order\` corrects a Taylor tail; with \`rest drop\` there is none" \
    build specs/tails.pisa --set $order
done
said=$("$pisac" explain specs/tails.pisa --set rest=drop 2>&1 >/dev/null) ||
  { echo "pisac explain specs/tails.pisa --set rest=drop: status $?"; status=1; }
case $said in
*"specs/tails.pisa:8:38: note: mass=second_order is dropped: \`mass second_order\` corrects"*) ;;
*) echo "pisac explain specs/tails.pisa --set rest=drop: said $said"; status=1 ;;
esac

# `check` notes what no kernel exists for: the spec is good
notes() { # notes SENTENCE ARGS...
  sentence=$1
  shift
  said=$("$pisac" check "$@" 2>&1) || { echo "pisac check $*: status $?"; status=1; }
  case $said in
  *"$sentence"*) ;;
  *) echo "pisac check $*: said $said; expected $sentence"; status=1 ;;
  esac
}
notes "--set:1:11: note: half_tile on cannot be built yet: kernels with half tiles" $spec --set half_tile=on --set query=64
notes "errors/score-lse.pisa:6:" errors/score-lse.pisa
notes "note: score lse cannot be built yet: kernels exist for score mean" errors/score-lse.pisa
notes '"severity": "note", "file": "errors/score-lse.pisa", "line": 6' --json errors/score-lse.pisa
[ -z "$("$pisac" check $spec 2>&1)" ] || { echo "a note about a spec that can be built"; status=1; }

# `explain` says where a call is longer than any that can be launched
warns() { # warns MOST TOKENS [--set ...]
  most=$1
  shift
  "$pisac" explain $spec --tokens "$@" | grep -q "warning: pisa_launch refuses calls of more than $most tokens: the route"
}
warns 229376 229377 || { echo "explain: nothing about a row of scores that is too long"; status=1; }
warns 229376 229376 && { echo "explain: a warning about the longest row of scores"; status=1; }
warns 458752 458753 --set key=128 || { echo "explain: nothing about a row of scores of blocks of 128"; status=1; }
spec=specs/dense.pisa warns 229376 300000 && { echo "explain: dense attention has no row of scores"; status=1; }

"$pisac" build no_such.pisa 2>/dev/null
[ $? = 2 ] || { echo "a missing file is not status 2"; status=1; }
for format in pack c; do # nothing is said to be there that is not
  said=$("$pisac" build $spec --no-ptxas --format $format -o no_such_folder/x 2>&1)
  [ $? = 2 ] || { echo "an output that cannot be written is not status 2 ($format)"; status=1; }
  case $said in *variant*) echo "$said"; status=1 ;; esac
done
"$pisac" --version | grep -q 'sm_90a' || { echo "--version names no chip"; status=1; }
exit $status
