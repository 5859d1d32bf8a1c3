#!/bin/sh
# The original runtime's spelling of what gtrun does, for muscle memory. $GTRUN names another gtrun than the PATH's.
#
#   dispatch.sh AGENT ISSUE                       start a run                       gtrun dispatch AGENT ISSUE
#   dispatch.sh --quota                           which agents are dark, a table    gtrun quota
#   dispatch.sh --quota-dark                      their names alone                 gtrun quota --dark
#   dispatch.sh --preflight-quota AGENT           would it be refused: 0 or 9       gtrun preflight quota AGENT
#   dispatch.sh --preflight-duplicate AGENT ISSUE would it be refused: 0 or 11      gtrun preflight duplicate AGENT ISSUE
#   dispatch.sh --live-units ISSUE                what is live for one issue        gtrun live ISSUE
set -eu

gtrun=${GTRUN:-gtrun}

# wants HOW-MANY WORDS-THERE-ARE
wants() {
    [ "$1" = "$2" ] || usage
}

usage() {
    sed -n 's/^#   //p' "$0" >&2
    exit 2
}

case ${1-} in
--quota) wants 1 $# && exec "$gtrun" quota ;;
--quota-dark) wants 1 $# && exec "$gtrun" quota --dark ;;
--preflight-quota) wants 2 $# && exec "$gtrun" preflight quota "$2" ;;
--preflight-duplicate) wants 3 $# && exec "$gtrun" preflight duplicate "$2" "$3" ;;
--live-units) wants 2 $# && exec "$gtrun" live "$2" ;;
"" | -*) usage ;;
*) exec "$gtrun" dispatch "$@" ;;
esac
