"""What the unit itself executes: the runner before the agent program, the close-out after it."""
