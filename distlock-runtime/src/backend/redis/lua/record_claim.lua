-- RECORD_CLAIM
-- KEYS record, counter, mark of this owner's withdrawal          ARGV owner, fingerprint, lease ms, 'takeover' or 'reject', retention ms, note
-- Gives {1, fence, 1 if taken over} | {0, state, fingerprint, remaining ms or response or reason, note}
-- | -1: withdrawn before.
-- Repeat by the same owner: goes on under the same fence. A lapsed one is taken over only by the same fingerprint.
if redis.call('exists', KEYS[3]) == 1 then return -1 end
local found = redis.pcall('hmget', KEYS[1], 's', 'o', 'f', 'p', 'u', 'a', 'w')
if found.err then return found end
local state, owner, fence, fingerprint, lease_until, taken, channels = unpack(found)
if not state and redis.call('exists', KEYS[1]) == 1 then return foreign() end
local now = now_ms()
local life = ARGV[3] + ARGV[5]
lease_until = tonumber(lease_until or 0)
if state == 'i' and owner == ARGV[1] then
  redis.call('pexpire', KEYS[1], life)
  redis.call('hset', KEYS[1], 'u', digits(math.max(lease_until, now + ARGV[3])))
  return { 1, tonumber(fence), tonumber(taken) }
end
taken = 0
if state then
  if state ~= 'i' or lease_until > now then return present(state, fingerprint, lease_until, now) end
  if ARGV[4] == 'reject' then
    redis.call('pexpire', KEYS[1], ARGV[5])
    redis.call('hset', KEYS[1], 's', 'u')
    notify(channels)
    return { 0, 'u', fingerprint, '', redis.call('hget', KEYS[1], 'm') or '' }
  end
  if fingerprint ~= ARGV[2] then return present(state, fingerprint, lease_until, now) end
  taken = 1
end
fence = draw(KEYS[2])
if type(fence) == 'table' then return fence end
redis.call('hset', KEYS[1], 's', 'i', 'o', ARGV[1], 'f', digits(fence), 'p', ARGV[2], 'u', digits(now + ARGV[3]),
  'k', ARGV[5], 'a', taken)
if ARGV[6] ~= '' then redis.call('hset', KEYS[1], 'm', ARGV[6]) end
redis.call('pexpire', KEYS[1], life)
return { 1, fence, taken }
