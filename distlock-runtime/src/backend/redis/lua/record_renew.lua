-- RECORD_RENEW
-- KEYS records          ARGV an owner for each, then a fence for each, then a lease in ms for each
-- Gives the indexes, from 1, of claims that aren't held any more. Repeat: the same. PEXPIRE first: a write that needs
-- no memory, so that a full server takes the other.
local now = now_ms()
local gone, count = {}, #KEYS
for i = 1, count do
  local found = redis.pcall('hmget', KEYS[i], 's', 'o', 'f', 'u', 'k')
  local held = not found.err and found[1] == 'i' and found[2] == ARGV[i] and found[3] == ARGV[count + i]
  if held and number(found[4]) > now then
    local lease = tonumber(ARGV[2 * count + i])
    redis.call('pexpire', KEYS[i], digits(lease + number(found[5])))
    redis.call('hset', KEYS[i], 'u', digits(math.max(tonumber(found[4]), now + lease)))
  else
    gone[#gone + 1] = i
  end
end
return gone
