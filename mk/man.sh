#!/bin/sh
# The manual page, from the program's own help: mk/man.sh ATTEST >attest.1
# A command's page is the text of its --help, so the two cannot disagree.
set -eu
[ $# -eq 1 ] && [ -x "$1" ] || { echo "usage: man.sh ATTEST >attest.1" >&2; exit 2; }
attest=$1

# Text as it stands: a backslash and a leading dot or quote mean something to troff.
verbatim() {
    echo .nf
    sed -e 's/\\/\\\\/g' -e 's/-/\\-/g' -e "s/^\([.']\)/\\\\\&\1/"
    echo .fi
}
commands() { # their names, out of the list in the program's help
    "$attest" --help | sed -n '/^attest COMMAND/,/^$/s/^  \([a-z-]*\) .*/\1/p'
}

cat <<'HEAD'
.TH ATTEST 1 "" "attest" "User commands"
.SH NAME
attest \- verify and fuzz sparse-attention CUDA kernels against an exact reference
.SH SYNOPSIS
.B attest
.I COMMAND
[arguments]
.SH DESCRIPTION
HEAD
"$attest" --help | verbatim
for command in $(commands); do
    echo ".SH \"ATTEST $(echo "$command" | tr a-z A-Z)\""
    "$attest" "$command" --help | verbatim
done
cat <<'TAIL'
.SH ENVIRONMENT
.TP
.B NO_COLOR
no colours, on a terminal either
.TP
.B TMPDIR
where a kernel given as source is compiled
.TP
.B ATTEST_SIMT_MODULE
the script that compiles it
TAIL
