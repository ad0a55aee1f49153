-- Most workers ask in vain most of the time: then the rest of the script need not even be begun.
do
  local call, P, wants = redis.call, string.sub(KEYS[1], 1, -5), tonumber(ARGV[6])
  if ARGV[7 + 3 * wants] == '0' then
    local lines, page = {}, call('ZRANGE', P .. 'due', 0, 0)[1]
    for at = 7, 4 + 3 * wants, 3 do
      lines[#lines + 1] = P .. ARGV[at + 1] .. ':' .. ARGV[at]
      lines[#lines + 1] = P .. string.upper(ARGV[at + 1]) .. ':' .. ARGV[at]
      lines[#lines + 1] = P .. 't' .. ARGV[at + 1] .. ':' .. ARGV[at]
    end
    local any = page and wants > 0 and struct.unpack('>I8', page) <= tonumber(ARGV[1])
    for from = 1, #lines, 5000 do
      any = any or call('EXISTS', unpack(lines, from, math.min(#lines, from + 4999))) > 0
    end
    if not any then
      return {'', {}, page and string.sub(page, 1, 8) or '', ''}
    end
  end
end

