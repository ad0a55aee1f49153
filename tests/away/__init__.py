"""What happens while a store is away: who waits costs nothing, nothing is told twice, stopping stops."""
