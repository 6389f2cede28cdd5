#!/bin/sh
# A compiler that does not end; it precompiles no headers.
case "$*" in
*c++-header*) exit 1 ;;
esac
echo running
exec sleep 1000
