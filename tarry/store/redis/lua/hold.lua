-- ARGV: name, owner, until, now. Takes or prolongs a named lease; answers 1, or 0 while it is another's.
local now = tonumber(ARGV[4])
local other, until_ = string.match(lib.call('HGET', lib.P .. 'holds', ARGV[1]) or '', '^(.*) (%S+)$')
if other and other ~= ARGV[2] and tonumber(until_) > now then return 0 end
lib.call('HSET', lib.P .. 'holds', ARGV[1], ARGV[2] .. ' ' .. ARGV[3])
-- Owners that have not been heard of for a day.
lib.call('ZREMRANGEBYSCORE', lib.P .. 'leases', '-inf', string.format('%.0f', now - 86400000000))
return 1
