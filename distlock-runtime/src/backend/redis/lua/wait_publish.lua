-- WAIT_PUBLISH
-- KEYS waits beside a lock that is held meanwhile          ARGV id of the wait, beat, rest of the entry, its life in ms, most entries
-- Gives 1, or 0 if there are too many others. Repeat: the same; one that comes late never takes a beat back.
local now = now_ms()
local known = redis.call('hget', KEYS[1], ARGV[1])
if known then
  local beat = string.match(known, '^%S+ %d+ (%d+) ')
  if tonumber(beat) > tonumber(ARGV[2]) then return 1 end
else
  local entries = redis.call('hvals', KEYS[1])
  local count = #entries
  for _, entry in ipairs(entries) do
    local id, live = string.match(entry, '^(%S+) (%d+) ')
    if tonumber(live) <= now then count = count - redis.call('hdel', KEYS[1], id) end
  end
  if count >= tonumber(ARGV[5]) then return 0 end
end
local entry = table.concat({ ARGV[1], string.format('%.0f', now + ARGV[4]), ARGV[2], ARGV[3] }, ' ')
redis.call('hset', KEYS[1], ARGV[1], entry)
redis.call('pexpire', KEYS[1], ARGV[4])
return 1
