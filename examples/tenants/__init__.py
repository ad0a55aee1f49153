"""One application for many customers: nobody waits for a large one, and who pays more gets more."""
