#!/bin/sh
# A compiler that is killed when it has written half of its result, whose name comes last.
for result in "$@"; do :; done
echo half >"$result"
kill -9 $$
