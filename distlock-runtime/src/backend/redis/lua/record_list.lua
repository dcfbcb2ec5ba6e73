-- RECORD_LIST
-- KEYS records          ARGV scope or '', 'u' for those whose outcome nobody knows or ''
-- Gives for each record that passes {index from 1, state, remaining ms or length of the result or reason, kept for ms, note}.
local now = now_ms()
local found = {}
for i = 1, #KEYS do
  local record = redis.pcall('hmget', KEYS[i], 's', 'u', 'm')
  local state = not record.err and record[1]
  if state then
    local remaining = math.max(0, number(record[2]) - now)
    local note = record[3] or ''
    local of_scope = ARGV[1] == '' or string.sub(note, 1, 32) == ARGV[1]
    local unresolved = state == 'u' or (state == 'i' and remaining == 0)
    if of_scope and (ARGV[2] == '' or unresolved) then
      local rest
      if state == 'i' then rest = digits(remaining)
      elseif state == 't' then rest = redis.call('hget', KEYS[i], 'b') or ''
      else rest = digits(redis.call('hstrlen', KEYS[i], 'b')) end
      found[#found + 1] = { i, state, rest, redis.call('pttl', KEYS[i]), note }
    end
  end
end
return found
