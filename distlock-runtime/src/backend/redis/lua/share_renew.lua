-- SHARE_RENEW
-- KEYS lock and shares of each          ARGV an owner for each, then a ttl in ms for each
-- Gives the indexes, from 1, of those that aren't held any more. Never creates a share. Repeat: the same. PEXPIRE first: a
-- write that needs no memory, so that a full server takes the other.
local now = now_ms()
local gone, count = {}, #KEYS / 2
for i = 1, count do
  local lock, shares, owner = KEYS[2 * i - 1], KEYS[2 * i], ARGV[i]
  local found = redis.pcall('hmget', lock, 'w', owner)
  local deadline = 0
  if not found.err and found[2] then deadline = tonumber(redis.call('zscore', shares, owner) or 0) end
  if deadline > now then
    deadline = math.max(deadline, now + ARGV[count + i])
    local last = tonumber(redis.call('zrange', shares, -1, -1, 'WITHSCORES')[2])
    local life = string.format('%.0f', math.max(deadline, last, tonumber(found[1] or 0)) - now + 1)
    redis.call('pexpire', lock, life)
    redis.call('pexpire', shares, life)
    redis.call('zadd', shares, string.format('%.0f', deadline), owner)
  else
    gone[#gone + 1] = i
  end
end
return gone
