-- exchange_nodes: as `exchange`, of changes of which some do something to a flow, or await a signal.
-- Keys: as exchange, and those of `flows.lua` and `signals.lua`.
-- Arguments: as exchange; then the kinds of effects (`redis/flow_effects.py` packs them), for each effect its
-- change and its kind (2 bytes each, from 1), the number of kinds, and how many nodes to release at most.
-- Answer: as exchange, and 1 if there are more nodes to release, else 0.
-- Cost: as exchange; for each flow and each gate one read and one write, and for each 1,000 released nodes.
function lib.exchange_nodes()
  lib.most_released = tonumber(table.remove(ARGV))
  local count, kinds = tonumber(table.remove(ARGV)), {}
  lib.effect_numbers = table.remove(ARGV)
  for number = count, 1, -1 do kinds[number] = lib.parse_effect(table.remove(ARGV)) end
  lib.effect_kinds, lib.after_changes, lib.after_claim = kinds, lib.settle_changes, lib.add_reasons
  local answer = lib.exchange()
  answer[7] = lib.settled.more_to_release and 1 or 0
  return answer
end

lib.most_released, lib.effect_numbers, lib.effect_kinds = 0, '', {}

-- Reads so many gates: first, count, parents, and if they are raised also by how much.
function lib.parse_told(text, at, count, raised)
  local gates = {}
  for number = 1, count do
    local gate = {}
    gate.first, gate.count, gate.parents = lib.parse('>I4I4I4', text, at)
    at = at + 12
    if raised then
      gate.more = lib.parse('>i4', text, at)
      at = at + 4
    end
    gates[number] = gate
  end
  return gates, at
end

-- Flags: 1 it does something to a flow, 2 revives, 4 awaits.
function lib.parse_effect(text)
  local flags, active, failed, armed, blocked, tells, raises, opens, note = lib.parse('>Bi4i4i4i4I4I4I4I4', text)
  local effect, at = {active = active, failed = failed, armed = armed, blocked = blocked}, 34
  effect.is_node, effect.revives = lib.has_flag(flags, 1), lib.has_flag(flags, 2)
  effect.tells, at = lib.parse_told(text, at, tells, false)
  effect.raises, at = lib.parse_told(text, at, raises, true)
  effect.opens, at = lib.parse_told(text, at, opens, false)
  effect.note = lib.sub(text, at, at + note - 1)
  at = at + note
  if lib.has_flag(flags, 4) then
    effect.awaits = {after = lib.sub(text, at, at + 7), address = lib.sub(text, at + 8)}
  end
  return effect
end

-- Adds an effect to those of a flow: most changes of a call have the same one.
function lib.count_effect(of, effect)
  if not of.times[effect] then
    of.effects[#of.effects + 1], of.times[effect] = effect, 0
  end
  of.times[effect] = of.times[effect] + 1
end

-- Does what those of the changes that were made do to flows and signals.
function lib.settle_changes(ids, valid, now)
  local by_flow, flows = {}, {}
  for at = 1, #lib.effect_numbers, 4 do
    local place, kind = lib.parse('>I2I2', lib.effect_numbers, at)
    local effect, id = lib.effect_kinds[kind], ids[place]
    if lib.sub(valid, place, place) == '1' then
      if effect.awaits then lib.await_signal(id, effect.awaits) end
      if effect.is_node then
        local flow = lib.flow_of(id)
        if not by_flow[flow] then by_flow[flow], flows[#flows + 1] = {effects = {}, times = {}}, flow end
        lib.count_effect(by_flow[flow], effect)
      end
    end
  end
  for _, flow in ipairs(lib.sort(flows)) do
    local row = lib.read_flow(flow)
    if row then
      local one = lib.settling(row, now, lib.most_released - lib.settled.released)
      lib.add_effects(one, by_flow[flow].effects, by_flow[flow].times)
      lib.finish_settling(one)
    end
  end
  lib.write_lines()
end

-- change_flow: changes the row of a flow if it is as it was seen.
-- Keys: as exchange_nodes.
-- Arguments: now, how many nodes to release at most, flow, the phase that it must have, the one that it gets, what
-- active, blocked and failed must be (12 bytes, or nothing); then for each of ends, note, at, active, failed, blocked 1
-- and what it becomes, or 0 and nothing.
-- Answer: 1, or 0 if it was not as seen.
-- Cost: as for a flow of exchange_nodes.
function lib.change_flow()
  local row = lib.read_flow(ARGV[3])
  if not row or row.phase ~= tonumber(ARGV[4]) then return 0 end
  if ARGV[6] ~= '' and ARGV[6] ~= lib.pack('>i4i4i4', row.active, row.blocked, row.failed) then return 0 end
  local one = lib.settling(row, tonumber(ARGV[1]), tonumber(ARGV[2]))
  row.phase = tonumber(ARGV[5])
  if ARGV[7] == '1' then row.ends = tonumber(ARGV[8]) end
  if ARGV[9] == '1' then row.note = ARGV[10] end
  if ARGV[11] == '1' then row.at = ARGV[12] end
  for number, name in ipairs({'active', 'failed', 'blocked'}) do
    if ARGV[11 + 2 * number] == '1' then row[name] = tonumber(ARGV[12 + 2 * number]) end
  end
  if row.phase == lib.CANCELLING then lib.close_gates(one) end
  lib.finish_settling(one)
  lib.end_settling()
  return 1
end

-- insert_flow: stores a flow, or the first part of a large one.
-- Keys: as insert, and those of `flows.lua`; wakes for `w`.
-- Arguments: flow, its row, its gates (first, count, waits, next, 4 bytes each), how many jobs there are, ids and
-- records in turn, the root first; the record of what they count as, or nothing.
-- Answer: the id of the flow that lives.
-- Cost: some three commands for each job and gate.
function lib.insert_flow()
  local id, limits, digits = ARGV[1], lib.read_limits(), {}
  local lives, is_new = lib.insert_one(id, ARGV[6], limits)
  if not is_new then return lives end
  local row = lib.parse_flow(id, ARGV[2])
  row.was_phase = nil
  lib.save_flow(row)
  lib.add_to_line(lib.FLOW_IDS, id)
  for at = 1, #ARGV[3], 16 do
    local first, count, waits, following = lib.parse('>I4I4I4i4', ARGV[3], at)
    lib.save_gate(row, {first = first, count = count, waits = waits, next = following})
  end
  digits[1] = '1'
  for number = 2, tonumber(ARGV[4]) do
    local _, new = lib.insert_one(ARGV[3 + 2 * number], ARGV[4 + 2 * number], limits)
    digits[number] = new and '1' or '0'
  end
  lib.end_insert(digits)
  return id
end

-- insert_nodes: stores nodes of a flow, blocked.
-- Keys: as insert, and flows; wakes for `w`.
-- Arguments: flow, how many nodes there are, ids and records in turn, the record of what they count as, or nothing.
-- Answer: 1, or 0 if the flow is gone: then none is stored.
-- Cost: some three commands for each job.
function lib.insert_nodes()
  if lib.call('HEXISTS', lib.FLOWS, ARGV[1]) == 0 then return 0 end
  local limits, digits = lib.read_limits(), {}
  for number = 1, tonumber(ARGV[2]) do
    local _, new = lib.insert_one(ARGV[1 + 2 * number], ARGV[2 + 2 * number], limits)
    digits[number] = new and '1' or '0'
  end
  lib.end_insert(digits)
  return 1
end

-- grow_flow: gives out indices of a flow.
-- Keys: flows.
-- Arguments: flow, how many, the most that a flow may have.
-- Answer: the first; nothing if the flow has ended, is gone, or would have too many.
-- Cost: one read, one write.
function lib.grow_flow()
  local row = lib.read_flow(ARGV[1])
  if not row or row.phase == lib.ENDED or row.size + ARGV[2] > tonumber(ARGV[3]) then return false end
  local first = row.size
  row.size = first + ARGV[2]
  lib.save_flow(row)
  return first
end

-- read_flows: flows by id.
-- Keys: reads flows, jobs, ends.
-- Arguments: ids.
-- Answer: rows, records of roots.
-- Cost: three reads.
function lib.read_flows() return {lib.fetch(lib.FLOWS, ARGV), lib.fetch_records(ARGV)} end

-- release_more: releases nodes whose gates are open; else goes on with a signal that has not woken all who wait.
-- Keys: as exchange_nodes.
-- Arguments: now, how many nodes to release, of how many flows, how many jobs to wake.
-- Answer: 1 if there may be more to do, else 0.
-- Cost: two reads if there is nothing. Else as many jobs as the limit, as for flows of exchange_nodes.
function lib.release_more()
  local now, limit = tonumber(ARGV[1]), tonumber(ARGV[2])
  if lib.release_in_turn(now, limit, ARGV[3]) then
    lib.end_settling()
    return 1
  end
  local address = lib.call('HRANDFIELD', lib.WAKING)
  if not address then return 0 end
  lib.end_waking(lib.wake_next(address, ARGV[4], lib.pack('>I8', ARGV[1])))
  return 1
end

-- tidy_flows: deletes nodes of a flow, or the flow, else signals.
-- Keys: as exchange_nodes.
-- Arguments: now, limit, how many nodes of ended flows are kept, microseconds after which a flow that is not stored
-- whole is deleted, the note of such a one, the member of `awaited` that was checked last, or nothing.
-- Answer: 1 if there may be more to do, else 0; the member that was checked last.
-- Cost: five reads if there is nothing. Else as many jobs as the limit, as for a flow of exchange_nodes.
function lib.tidy_flows()
  local now, limit = tonumber(ARGV[1]), tonumber(ARGV[2])
  if lib.delete_more(now, limit) then
    lib.end_settling()
    return {1, ARGV[6]}
  end
  local found, more = lib.drop_signals(now, limit)
  return {more and 1 or 0, found and ARGV[6] or lib.drop_waits(ARGV[6])}
end

-- Releases up to so many nodes of up to so many flows, each of which is then behind the others; answers whether there
-- were any.
function lib.release_in_turn(now, limit, flows)
  local found, left = false, limit
  for _, flow in ipairs(lib.call('ZRANGE', lib.MOVING, '0', flows - 1)) do
    if left <= 0 then break end
    local row = lib.read_flow(flow)
    local gates = row and lib.releases(row) and lib.open_gates(flow, left) or {}
    if #gates > 0 then
      local one = lib.settling(row, now, left)
      one.opened, found = gates, true
      lib.finish_settling(one)
      left = one.most
      lib.call('ZADD', lib.MOVING, lib.call('ZRANGE', lib.MOVING, '-1', '-1', 'WITHSCORES')[2] + 1, flow)
    else
      lib.call('ZREM', lib.MOVING, flow)
    end
  end
  return found
end

-- The first open gates of a flow that have so many nodes to release.
function lib.open_gates(flow, most)
  local gates, left = {}, most
  for _, gate in ipairs(lib.read_gates(flow, lib.gates_in(lib.OPEN_GATES, flow, most))) do
    if left <= 0 then break end
    gates[#gates + 1], left = gate, left - (gate.first + gate.count - gate.next)
  end
  return gates
end

-- Ends a flow that was not stored in time, or deletes nodes of one that has ended; answers whether there was one.
function lib.delete_more(now, limit)
  local storing = lib.call('ZRANGE', lib.phase_key(lib.STORING), '0', '0')[1]
  local row = storing and lib.read_flow(storing)
  if row and lib.parse('>I8', row.at) <= now - ARGV[4] then
    row.active, row.ends, row.note = 0, 5, ARGV[5]
    lib.end_flow(row, now, lib.NO_TIME)
    return true
  end
  local ended = lib.call('ZRANGE', lib.phase_key(lib.ENDED), '0', '0')[1]
  row = ended and lib.read_flow(ended)
  if not row then return false end
  local too_many = tonumber(lib.call('GET', lib.ENDED_NODES) or 0) > tonumber(ARGV[3])
  if not too_many and lib.parse('>I8', row.at) > now then return false end
  lib.delete_some(row, now, limit)
  return true
end

-- Deletes some nodes of an ended flow, or the flow itself if there are none.
function lib.delete_some(row, now, limit)
  local ids, any = lib.idle_nodes(row.id, limit)
  if #ids > 0 then return lib.delete_jobs(ids) end
  if any then
    -- A person runs one of them once more.
    local since = lib.less(row.at, lib.pack('>I8', now)) and lib.pack('>I8', now) or row.at
    row.at = lib.add_times(since, lib.pack('>I8', ARGV[4]))
    return lib.save_flow(row)
  end
  local prefix = lib.sub(row.id, 1, 12)
  for _, key in ipairs({lib.OPEN_GATES, lib.HELD_GATES}) do
    lib.call('ZREMRANGEBYLEX', key, '[' .. prefix, '(' .. prefix .. '\255')
  end
  lib.call('UNLINK', lib.gates_key(row.id))
  lib.delete_jobs({row.id})
  lib.call('HDEL', lib.FLOWS, row.id)
  lib.call('ZREM', lib.phase_key(lib.ENDED), row.id)
  lib.call('ZREM', lib.MOVING, row.id)
  lib.call('DECRBY', lib.ENDED_NODES, row.size)
  lib.remove_from_line(lib.FLOW_IDS, row.id)
end

-- Up to so many nodes of a flow that are finished or blocked, and whether there are any nodes.
function lib.idle_nodes(flow, limit)
  local ids, any, after, more, last = {}, false, flow, true, lib.node_of(flow, 4294967295)
  while more and #ids < limit do
    local some
    some, more = lib.ids_after(after, 33)
    local records, entries = lib.fetch_records(some), lib.fetch(lib.RUN, some)
    for number, id in ipairs(some) do
      if lib.less(last, id) then return ids, any end
      any = true
      local is_idle = not entries[number] and records[number] and lib.byte(records[number], 1) >= lib.DONE
      if is_idle and #ids < limit then ids[#ids + 1] = id end
    end
    after = some[#some] or after
    if #some == 0 then return ids, any end
  end
  return ids, any
end

-- Deletes jobs that are finished or blocked.
function lib.delete_jobs(ids)
  local gone = {}
  for number, record in ipairs(lib.fetch_records(ids)) do
    if record then
      local id, state = ids[number], lib.byte(record, 1)
      local at, note = lib.tail_position(record)
      local tail = lib.parse_tail(record, at)
      local size = lib.tail_size(tail, note)
      lib.release_key(tail, id)
      lib.tally(state, tail.names, -1, -size)
      if state ~= lib.BLOCKED then lib.add_weight(tail.queue, lib.keep_until_of(record), -size) end
      lib.remove_from_line(lib.line_and_entry(id, record, tail))
      lib.remove_from_line(lib.IDS, id)
      lib.each_label(lib.remove_from_line, tail, id)
      gone[#gone + 1] = id
    end
  end
  lib.call_in_batches('HDEL', lib.JOBS, gone)
  lib.call_in_batches('HDEL', lib.ENDS, gone)
end
