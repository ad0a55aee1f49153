-- Answers the queues that have ready jobs, and those that are paused.
local ready = {}
for _, queue in ipairs(lib.call('SMEMBERS', lib.QUEUES)) do
  local keys = {}
  for band in pairs(lib.WIDTHS) do
    keys[#keys + 1] = lib.open_line(queue, band)
    keys[#keys + 1] = lib.open_line(queue, band, true)
    keys[#keys + 1] = lib.tasks_key(queue, band)
  end
  if lib.call('EXISTS', unpack(keys)) > 0 then
    ready[#ready + 1] = queue
  else
    lib.call('SREM', lib.QUEUES, queue)
  end
end
return {ready, lib.call('SMEMBERS', lib.PAUSED)}
