"""What gtrun keeps on disk: the ledger of the claim account, and the run records of each agent's account."""
