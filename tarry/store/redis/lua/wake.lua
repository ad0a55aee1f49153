-- Wakes sleepers. Reasons: letters as those of WakeReason in tarry/model/wake.py: w work, r result, f step, c recall.
-- Work wakes one worker of each kind: the next in line, or whoever comes next. Where there are no lines, it wakes all.
-- Keys: the set of kinds, a list for each kind (`wakeup_line`). Cost: one PUBLISH a reason; for work, one look a kind.
function lib.wake(reasons)
  if string.find(reasons, 'w', 1, true) then
    local kinds = lib.call('ZRANGE', lib.P .. 'kinds', '0', '-1')
    for _, kind in ipairs(kinds) do
      local line = lib.P .. 'wake:' .. kind
      if lib.call('EXISTS', line) == 0 then lib.call('RPUSH', line, '1') end
    end
    if #kinds > 0 then reasons = string.gsub(reasons, 'w', '') end
  end
  -- pcall: an account that may not publish must not break off a script half done; its sleepers only wait a little.
  for reason in string.gmatch(reasons, '.') do redis.pcall('PUBLISH', lib.P .. 'wakeup:' .. reason, '') end
end
