"""The steps of a policy: pure functions over a ledger of one snapshot, without clock, randomness or I/O."""
