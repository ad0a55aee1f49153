-- Wakes who sleeps. Letters: w there is work, r a result, f a step, c a recall; one or several.
-- Of work hears one worker of each kind: the next in line, or whoever comes next. Where there are no lines, all hear.
function lib.ring(letters)
  if string.find(letters, 'w', 1, true) then
    local kinds = lib.call('ZRANGE', lib.P .. 'kinds', 0, -1)
    for _, kind in ipairs(kinds) do
      local line = lib.P .. 'wake:' .. kind
      if lib.call('EXISTS', line) == 0 then lib.call('RPUSH', line, '1') end
    end
    if #kinds > 0 then letters = string.gsub(letters, 'w', '') end
  end
  -- An account that may not publish keeps its sleepers waiting a little, and must not break off a script half done.
  for letter in string.gmatch(letters, '.') do redis.pcall('PUBLISH', lib.P .. 'bell:' .. letter, '') end
end
