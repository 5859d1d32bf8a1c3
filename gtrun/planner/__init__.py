"""The planner: which issue goes to which agent now, and why every other one does not. Pure, and the same each time.

One function says what an agent can take (`availability`), for the plan, for the guard under the claim lock and for
`gtrun rigs`. It reads no clock, no file and no chance: all that it depends on is in the `World` and the `Backlog`.
"""

from gtrun.planner.availability import (
    Availability,
    Bar,
    RigAvailability,
    Seen,
    World,
    agents,
    backoff,
    of_agent,
    rigs,
)
from gtrun.planner.plan import AgentPlan, IssuePlan, Plan, Why, plan, skills_of
from gtrun.planner.readiness import Backlog, Held, Readiness, Work, readiness

__all__ = [
    "AgentPlan",
    "Availability",
    "Backlog",
    "Bar",
    "Held",
    "IssuePlan",
    "Plan",
    "Readiness",
    "RigAvailability",
    "Seen",
    "Why",
    "Work",
    "World",
    "agents",
    "backoff",
    "of_agent",
    "plan",
    "readiness",
    "rigs",
    "skills_of",
]
