-- RECORD_PURGE
-- KEYS records          ARGV scope, how many at most
-- Gives {removed, left as they are in flight, left as there were too many}. Repeat: goes on.
local now = now_ms()
local removed, in_flight, left = 0, 0, 0
for i = 1, #KEYS do
  local record = redis.pcall('hmget', KEYS[i], 's', 'u', 'm')
  if not record.err and record[1] and string.sub(record[3] or '', 1, 32) == ARGV[1] then
    if record[1] == 'i' and number(record[2]) > now then
      in_flight = in_flight + 1
    elseif removed >= tonumber(ARGV[2]) then
      left = left + 1
    else
      redis.call('del', KEYS[i])
      removed = removed + 1
    end
  end
end
return { removed, in_flight, left }
