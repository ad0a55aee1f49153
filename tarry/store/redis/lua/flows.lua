-- Flows: `tarry/store/rules/flow_settle.py` has the rules, which are the same here. A flow is a range of ids of jobs.
--
-- A flow's row: phase 1, state that it ends in 1, at 8, size 4, active 4, blocked 4, failed 4, armed 4, undo 4,
-- keep_done 8, keep_dead 8, note. A gate's row: count 3, waits 3; next 4 if it is open. Numbers that may be negative
-- have a sign.
-- Hash: id of a flow to its row. Line: the ids of all flows. For each phase a sorted set of ids by `at`.
lib.FLOWS = lib.P .. 'flows'
lib.FLOW_IDS = lib.P .. 'flowids'
function lib.phase_key(phase) return lib.P .. 'flowat:' .. string.format('%d', phase) end
-- For each flow a hash: index of a gate's first node, 4 bytes, to the gate's row.
function lib.gates_key(flow) return lib.P .. 'gates:' .. lib.sub(flow, 1, 12) end
-- Sorted sets, whose scores are all 0, of gates that wait for nothing more (12 bytes of the flow, 4 of the first node):
-- those that are open, with nodes to release; and those that are held. And of flows that may have open gates, and whose
-- phase lets them be released: those served longest ago first.
lib.OPEN_GATES = lib.P .. 'open'
lib.HELD_GATES = lib.P .. 'withheld'
lib.MOVING = lib.P .. 'moving'
-- A number: how many nodes the flows have that have ended.
lib.ENDED_NODES = lib.P .. 'endednodes'
lib.STORING, lib.UNDER_WAY, lib.CANCELLING, lib.UNDOING, lib.ENDED = 0, 1, 2, 3, 4
-- 2^50: below it, a time of a blocked job counts from its release.
lib.RELATIVE = 1125899906842624
lib.FLOW_FORM, lib.GATE_FORM = '>BBc8i4i4i4i4i4i4c8c8', '>I3I3'
-- What this call did: how many nodes it released, how many jobs a signal woke, whether there are more to release, and
-- whether a flow has ended. And the ids of the nodes that it released.
lib.settled = {released = 0, woken = 0, more_to_release = false, ended = false}
lib.released_ids = {}

function lib.node_of(flow, index) return lib.sub(flow, 1, 12) .. lib.pack('>I4', index) end

function lib.flow_of(id) return lib.sub(id, 1, 12) .. '\0\0\0\0' end

-- The sum of two times of 8 bytes, which a double may not hold.
function lib.add_times(a, b)
  local a1, a2 = lib.parse('>I4I4', a)
  local b1, b2 = lib.parse('>I4I4', b)
  local low = a2 + b2
  local carry = math.floor(low / 4294967296)
  return lib.pack('>I4I4', a1 + b1 + carry, low - carry * 4294967296)
end

function lib.parse_flow(id, text)
  local row = {id = id}
  row.phase, row.ends, row.at, row.size, row.active, row.blocked, row.failed, row.armed, row.undo, row.keep_done,
    row.keep_dead = lib.parse(lib.FLOW_FORM, text)
  row.note = lib.sub(text, 51)
  row.was_phase, row.was_at = row.phase, row.at
  return row
end

-- The row of a flow; nil if it is gone.
function lib.read_flow(id)
  local text = lib.call('HGET', lib.FLOWS, id)
  return text and lib.parse_flow(id, text) or nil
end

function lib.save_flow(row)
  local numbers = lib.pack(
    lib.FLOW_FORM, row.phase, row.ends, row.at, row.size, row.active, row.blocked, row.failed, row.armed, row.undo,
    row.keep_done, row.keep_dead
  )
  lib.call('HSET', lib.FLOWS, row.id, numbers .. row.note)
  if row.phase == row.was_phase and row.at == row.was_at then return end
  if row.was_phase and row.phase ~= row.was_phase then
    lib.call('ZREM', lib.phase_key(row.was_phase), row.id)
    if row.phase == lib.ENDED then lib.call('INCRBY', lib.ENDED_NODES, row.size) end
    if row.was_phase == lib.ENDED then lib.call('DECRBY', lib.ENDED_NODES, row.size) end
  end
  lib.call('ZADD', lib.phase_key(row.phase), string.format('%.0f', lib.parse('>I8', row.at)), row.id)
  row.was_phase, row.was_at = row.phase, row.at
end

function lib.releases(row) return row.phase == lib.UNDER_WAY or row.phase == lib.UNDOING end

-- Whether gates of the flow open.
function lib.is_moving(row) return row.phase == lib.UNDOING or row.phase == lib.UNDER_WAY and row.failed == 0 end

-- Gates: first, count, waits, next (-1: not open, or held); whether it has a row.

function lib.parse_gate(first, text)
  local count, waits = lib.parse(lib.GATE_FORM, text)
  local following = #text > 6 and lib.parse('>I4', text, 7) or -1
  return {first = first, count = count, waits = waits, next = following, is_stored = true}
end

function lib.save_gate(flow, gate)
  local member = lib.node_of(flow.id, gate.first)
  local text = lib.pack(lib.GATE_FORM, gate.count, gate.waits)
  if gate.next >= 0 then text = text .. lib.pack('>I4', gate.next) end
  lib.call('HSET', lib.gates_key(flow.id), lib.sub(member, 13), text)
  if gate.next >= 0 then
    lib.call('ZADD', lib.OPEN_GATES, '0', member)
    lib.call('ZREM', lib.HELD_GATES, member)
    if lib.releases(flow) then lib.call('ZADD', lib.MOVING, 'NX', '0', flow.id) end
  elseif gate.waits == 0 then
    lib.call('ZADD', lib.HELD_GATES, '0', member)
  end
end

function lib.drop_gate(flow, gate)
  local member = lib.node_of(flow.id, gate.first)
  if lib.call('HDEL', lib.gates_key(flow.id), lib.sub(member, 13)) == 1 then
    lib.call('ZREM', lib.OPEN_GATES, member)
    lib.call('ZREM', lib.HELD_GATES, member)
  end
end

-- The members of a flow in one of the sets of gates, up to so many.
function lib.gates_in(key, flow, most)
  local prefix = lib.sub(flow, 1, 12)
  return lib.call('ZRANGEBYLEX', key, '[' .. prefix, '(' .. prefix .. '\255', 'LIMIT', '0', most)
end

-- The gates that these members name.
function lib.read_gates(flow, members)
  local gates, firsts = {}, {}
  for number, member in ipairs(members) do firsts[number] = lib.sub(member, -4) end
  for number, text in ipairs(lib.fetch(lib.gates_key(flow), firsts)) do
    if text then gates[#gates + 1] = lib.parse_gate(lib.parse('>I4', firsts[number]), text) end
  end
  return gates
end

-- Ends the root of a flow: it gives up its key, and stays until the flow goes.
function lib.end_root(flow, state, note, now)
  local record = lib.call('HGET', lib.JOBS, flow)
  if not record or lib.byte(record, 1) ~= lib.BLOCKED then return end
  local at, old_note = lib.tail_position(record)
  local tail = lib.parse_tail(record, at)
  lib.tally(lib.BLOCKED, tail.names, -1, -lib.tail_size(tail, old_note))
  lib.tally(state, tail.names, 1, lib.tail_size(tail, #note))
  lib.release_key(tail, flow)
  tail.key_held_until = lib.NO_TIME
  -- A root has neither a priority nor failures.
  local noted = note ~= '' and lib.pack('>I4', #note) .. note or ''
  record = string.char(state) .. lib.sub(record, 2, 13) .. string.char(note ~= '' and 26 or 10) .. lib.pack('>I8', now)
    .. lib.FOREVER .. noted .. lib.format_tail(tail)
  lib.call('HSET', lib.JOBS, flow, record)
  lib.add_to_line(lib.line_and_entry(flow, record, tail))
end

function lib.format_note(type, message)
  return '{"type":"' .. type .. '","message":"' .. message .. '","node":0}'
end

-- How a flow ends, now that none of its nodes is active: `rules.ending`.
function lib.ending(row)
  if row.ends == lib.DONE and row.blocked > 0 then
    local message = string.format('%d of its jobs wait for others that are gone', row.blocked)
    return lib.DEAD, lib.format_note('Stuck', message)
  end
  return row.ends, row.ends == lib.DONE and '' or row.note
end

-- keep: how long the flow is kept, 8 bytes; nil: as it says itself.
function lib.end_flow(row, now, keep)
  row.ends, row.note = lib.ending(row)
  lib.end_root(row.id, row.ends, row.note, now)
  keep = keep or (row.ends == lib.DEAD and row.keep_dead or row.keep_done)
  row.phase, row.at = lib.ENDED, lib.add_times(lib.pack('>I8', now), keep)
  lib.save_flow(row)
  lib.settled.ended = true
end

-- One flow, while changes are made to it. most: how many nodes may be released.

function lib.settling(row, now, most)
  local one = {row = row, opened = {}, now = now, most = most}
  one.was_moving, one.was_releasing = lib.is_moving(row), lib.releases(row)
  return one
end

-- Adds up the effects of changes that were made, in the order of the changes. times: how often each effect was.
function lib.add_effects(one, effects, times)
  local row = one.row
  for _, effect in ipairs(effects) do
    local count = times[effect]
    row.active, row.blocked = row.active + effect.active * count, row.blocked + effect.blocked * count
    row.failed, row.armed = row.failed + effect.failed * count, row.armed + effect.armed * count
    if row.note == '' then row.note = effect.note end
  end
  row.failed, row.armed = math.max(0, row.failed), math.max(0, row.armed)
  for _, effect in ipairs(effects) do
    if effect.revives then row.phase, row.at = lib.UNDER_WAY, lib.FOREVER end
  end
  lib.tell_gates(one, effects, times)
end

-- Raises the gates, then tells them, and opens those that wait for nothing more.
function lib.tell_gates(one, effects, times)
  local gates, raised, told, firsts = {}, {}, {}, {}
  local function meet(gate, more, ends)
    local first = gate.first
    if not gates[first] then
      gates[first], raised[first], told[first] = gate, 0, 0
      firsts[#firsts + 1] = first
    end
    raised[first], told[first] = raised[first] + more, told[first] + ends
  end
  for _, effect in ipairs(effects) do
    for _, gate in ipairs(effect.raises) do meet(gate, gate.more * times[effect], 0) end
  end
  for _, effect in ipairs(effects) do
    for _, gate in ipairs(effect.tells) do meet(gate, 0, times[effect]) end
  end
  table.sort(firsts)
  local stored = lib.rows_of(one, firsts, gates, raised)
  for _, first in ipairs(firsts) do lib.count_gate(one, gates[first], stored[first], raised[first], told[first]) end
  for _, effect in ipairs(effects) do
    for _, gate in ipairs(effect.opens) do
      lib.open_gate(one, {first = gate.first, count = gate.count, waits = 0, next = -1})
    end
  end
end

function lib.rows_of(one, firsts, gates, raised)
  local members, stored = {}, {}
  for _, first in ipairs(firsts) do
    if gates[first].parents > 1 or raised[first] ~= 0 then members[#members + 1] = lib.pack('>I4', first) end
  end
  for _, gate in ipairs(lib.read_gates(one.row.id, members)) do stored[gate.first] = gate end
  return stored
end

function lib.count_gate(one, gate, stored, raised, told)
  -- Its row is gone: the audit finds the nodes behind it.
  if not stored and gate.parents > 1 and raised == 0 then return end
  if stored and stored.waits == 0 then return end
  local waits = math.max(0, (stored and stored.waits or gate.parents) + raised - told)
  local counted = {first = gate.first, count = gate.count, waits = waits, next = -1, is_stored = stored ~= nil}
  if waits == 0 then
    lib.open_gate(one, counted)
  elseif stored or raised ~= 0 then
    lib.save_gate(one.row, counted)
  end
end

function lib.open_gate(one, gate)
  local row = one.row
  -- Held: it opens if what failed is tried again.
  if not lib.is_moving(row) then return lib.save_gate(row, gate) end
  gate.next = gate.first
  one.opened[#one.opened + 1] = gate
  row.blocked, row.active = row.blocked - gate.count, row.active + gate.count
end

-- Holds what is left to release of the gates that are open.
function lib.close_gates(one)
  local row = one.row
  for _, gate in ipairs(lib.read_gates(row.id, lib.gates_in(lib.OPEN_GATES, row.id, -1))) do
    local left = gate.first + gate.count - gate.next
    lib.drop_gate(row, gate)
    lib.save_gate(row, {first = gate.next, count = left, waits = 0, next = -1})
    row.active, row.blocked = row.active - left, row.blocked + left
  end
end

-- Releases what may be, ends the flow if nothing is active, and writes its row.
function lib.finish_settling(one)
  local row = one.row
  if lib.is_moving(row) and not one.was_moving then
    local held = lib.gates_in(lib.HELD_GATES, row.id, -1)
    for _, gate in ipairs(lib.read_gates(row.id, held)) do lib.open_gate(one, gate) end
  end
  if row.phase == lib.UNDER_WAY then
    row.ends = row.failed == 0 and lib.DONE or lib.DEAD
    if row.failed == 0 then row.note, row.armed = '', 0 end
  end
  if lib.releases(row) and not one.was_releasing and lib.gates_in(lib.OPEN_GATES, row.id, 1)[1] then
    lib.call('ZADD', lib.MOVING, 'NX', '0', row.id)
  end
  lib.release_opened(one)
  local goes_on = row.active > 0 or row.phase == lib.STORING or row.phase == lib.ENDED
  if goes_on or lib.start_undoing(one) then lib.save_flow(row) else lib.end_flow(row, one.now) end
end

function lib.release_opened(one)
  for _, gate in ipairs(one.opened) do
    local last = gate.first + gate.count
    local count = math.min(last - gate.next, one.most)
    if count > 0 then lib.release_some(one, gate.next, count) end
    gate.next = gate.next + count
    if gate.next < last then
      lib.settled.more_to_release = true
      lib.save_gate(one.row, gate)
    elseif gate.is_stored then
      lib.drop_gate(one.row, gate)
    end
  end
end

-- Releases nodes; those that are gone count as failed.
function lib.release_some(one, first, count)
  local row = one.row
  local released = lib.release_nodes(row.id, first, count, one.now)
  local missing = count - released
  one.most, lib.settled.released = one.most - count, lib.settled.released + released
  if missing == 0 then return end
  row.active, row.failed = row.active - missing, row.failed + missing
  if row.note == '' then
    row.note = lib.format_note('Lost', string.format('%d of its jobs are gone: they were deleted by hand', missing))
  end
  if row.phase == lib.UNDER_WAY then row.ends = lib.DEAD end
end

-- Starts the node that undoes the others, if that is asked for and not done yet; answers whether.
function lib.start_undoing(one)
  local row = one.row
  if row.phase ~= lib.UNDER_WAY or row.armed == 0 or row.undo <= 0 then return false end
  row.phase, row.active = lib.UNDOING, lib.release_nodes(row.id, row.undo, 1, one.now)
  if row.active == 0 then return false end
  row.undo, lib.settled.released = -row.undo, lib.settled.released + 1
  return true
end

-- What was done to flows, as reasons to wake besides these. claimed: ids of jobs that this call gave to a worker: for
-- them no other one need wake.
function lib.add_reasons(reasons, claimed)
  local work = lib.settled.woken > 0 or lib.has_others(lib.released_ids, claimed)
  if work and not string.find(reasons, 'w', 1, true) then reasons = 'w' .. reasons end
  if lib.settled.ended and not string.find(reasons, 'r', 1, true) then reasons = reasons .. 'r' end
  return reasons
end

-- Whether one of the first ids is none of the others.
function lib.has_others(ids, others)
  -- Mostly one or none was released.
  if #ids <= 1 and #others <= 1 then return ids[1] ~= nil and ids[1] ~= others[1] end
  local known = {}
  for _, id in ipairs(others) do known[id] = true end
  for _, id in ipairs(ids) do
    if not known[id] then return true end
  end
  return false
end

-- Writes what was gathered, and wakes whom it concerns.
function lib.end_settling()
  lib.write_lines()
  lib.write_tallies()
  local reasons = lib.add_reasons('', {})
  if reasons ~= '' then lib.wake(reasons) end
end
