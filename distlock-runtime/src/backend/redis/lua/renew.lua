-- RENEW
-- KEYS locks          ARGV a value for each, then a ttl in ms for each
-- Gives the indexes, from 1, of those that aren't ours any more. Never creates a lock, and never shortens a lease: this
-- may arrive after a renewal to a larger ttl that was sent later. Repeat: the same.
local holders = redis.call('mget', unpack(KEYS))
local gone = {}
for i = 1, #KEYS do
  if holders[i] == ARGV[i] then
    local ttl = ARGV[#KEYS + i]
    if redis.call('pttl', KEYS[i]) < tonumber(ttl) then redis.call('pexpire', KEYS[i], ttl) end
  else
    gone[#gone + 1] = i
  end
end
return gone
