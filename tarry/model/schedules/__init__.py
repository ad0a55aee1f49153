"""When schedules tick: cron expressions, intervals, calendars."""
