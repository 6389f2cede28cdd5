#!/bin/sh
# Sends the process that runs it Ctrl-C, then compiles.
kill -INT "$PPID"
exec c++ "$@"
