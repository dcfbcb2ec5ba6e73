-- ACQUIRE_ALL, several exclusive locks or none.
-- KEYS lock, counter, tombstones of each          ARGV a value for each, then a ttl in ms for each, then how many tokens for each
-- Gives the first token of each | -1: one was cancelled before | {index from 1, holder's value, its remaining ms} of the
-- first that is held. Nothing is taken then.
-- Repeat by the same owners: the leases at their full length, new tokens.
local count, mine = #KEYS / 3, {}
for i = 1, count do
  local lock, tombstones, value = KEYS[3 * i - 2], KEYS[3 * i], ARGV[i]
  if redis.call('zscore', tombstones, string.sub(value, 1, 32)) then return -1 end
  local holder = redis.pcall('get', lock)
  if type(holder) == 'table' then return holder end
  mine[i] = holder == value
  if holder and not mine[i] and not redis.call('zscore', tombstones, string.sub(holder, 1, 32)) then
    return { i, holder, redis.call('pttl', lock) }
  end
end
local tokens, taken = {}, {}
for i = 1, count do
  local lock, ttl = KEYS[3 * i - 2], ARGV[count + i]
  if not mine[i] then
    redis.call('set', lock, ARGV[i], 'PX', ttl)
    taken[#taken + 1] = lock
  elseif redis.call('pttl', lock) < tonumber(ttl) then
    redis.call('pexpire', lock, ttl)
  end
  local token = draw(KEYS[3 * i - 1], ARGV[2 * count + i])
  if type(token) == 'table' then
    if taken[1] then redis.call('del', unpack(taken)) end
    return token
  end
  tokens[i] = token
end
return tokens
