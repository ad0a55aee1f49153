"""Who did what: who acts now, what is kept of it with the job and in the store's log of acts."""
