"""What `rq cron` reads."""

from rq import cron

from bench.beside_faults import tasks

for number in range(tasks.SCHEDULES):
    cron.register(tasks.tick, queue_name="beside", args=(number,), cron=tasks.MINUTES, job_timeout=60)
