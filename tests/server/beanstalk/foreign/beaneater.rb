# Debian's beaneater: the life of a job. Arguments: the port.
require "beaneater"

def check(is_so, what)
  abort(what) unless is_so
end

client = Beaneater.new("127.0.0.1:#{ARGV[0]}")
tube = client.tubes["mail"]
put = tube.put("ann", pri: 10, ttr: 60)
job = tube.reserve(5)
check(job.id == put[:id] && job.body == "ann", "another job")
job.touch
check(job.stats.state == "reserved", "its state")
job.release(pri: 5, delay: 0)
again = tube.reserve(5)
check(again.id == put[:id], "another job after its release")
again.bury(pri: 1)
check(tube.peek(:buried).id == put[:id], "another job is buried")
again.kick
tube.reserve(5).delete
begin
  tube.reserve(0)
  abort("one more job")
rescue Beaneater::TimedOutError
end
check(tube.stats.current_jobs_reserved == 0, "its tube")
client.close
