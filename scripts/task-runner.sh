#!/bin/sh
# The original runtime's name for the run itself. Here systemd executes that, as `gtrun run`, in the unit that a dispatch
# starts: typed by hand it would be a run without a unit, which nobody could see, stop or close out.
echo "task-runner.sh: a run belongs into its unit; start one with: gtrun dispatch AGENT ISSUE (or dispatch.sh AGENT ISSUE)" >&2
exit 2
