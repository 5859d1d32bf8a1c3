#!/bin/sh
# room.sh: how full the file systems are that the agent's home and state lie on; exits with 1 if one has less room left
# than its argument says, in per cent (10 without one).
#
#   [plugins.room]
#   arguments = ["5"]
#   cooldown = "1h"
set -eu
least=${1:-10}
case $least in '' | *[!0-9]*) echo "usage: room [PER-CENT]" >&2 && exit 2 ;; esac

# -P: one line each, of which the fifth column is what is used and the last is where it is mounted
df -P "$HOME" "${XDG_STATE_HOME:-$HOME/.local/state}" | awk -v least="$least" '
    NR > 1 && !told[$6]++ {
        left = 100 - $5
        print $6 ": " left "% of " $2 " KiB left"
        if (left < least) short = 1
    }
    END { exit short }'
