-- A lock that is held in shares: read/write locks, semaphores, and locks of explicit owners. The layout is told in docs/wire.md:
-- KEYS[1] a hash of k kind, l limit, u used, w the end of the last waiter's window (ms), and for each owner
--         "<weight> <label>" if it holds, "<live until, ms> <claim, ms> <channel or -> <weight> <label>" if it waits.
--         Of an explicit owner's lock also o the id of the owner whose holds these are, t the token that they share; its waiters
--         end with " <id>"
-- KEYS[2] the holders, scored by deadline (ms)          KEYS[3] the waiters in order of arrival
-- `used` is kept, not summed up, and each call removes a bounded number of what is over: no call grows with the number of holders
-- or waiters. `keep` comes last in every script that changed something.
local PURGE = 100
local now = now_ms()
local limit, used, window
local owned, whose

local function digits(number) return string.format('%.0f', number) end

local function conflict(with)
  return { err = 'WRONGTYPE the key is in use by ' .. with }
end

-- The kind that stands there, and sets limit, used and window | nil: none | nil and an error table.
local function open()
  local found = redis.pcall('hmget', KEYS[1], 'k', 'l', 'u', 'w', 'o')
  if found.err then return nil, found end
  if found[1] == 'rw' or found[1] == 'sem' or found[1] == 'own' then
    limit, used, window = tonumber(found[2]), tonumber(found[3]), tonumber(found[4])
    owned, whose = found[1] == 'own', found[5]
    return found[1]
  end
  if redis.call('exists', KEYS[1]) == 1 then return nil, conflict('something else than a lock') end
  return nil
end

-- When this owner's share ends, if it holds one.
local function deadline_of(owner)
  local deadline = tonumber(redis.call('zscore', KEYS[2], owner) or 0)
  if deadline > now then return deadline end
  return nil
end

-- The weight of an entry of a holder, and its label.
local function share_of(owner)
  local weight, label = string.match(redis.call('hget', KEYS[1], owner) or '', '^(%d+) (%S*)$')
  return tonumber(weight or 0), label or ''
end

-- Whether there is room for so much more, of this explicit owner if the lock is of that kind.
local function fits(weight, id)
  if owned then return used == 0 or whose == id end
  return used + weight <= limit
end

-- The first hold of an explicit owner: from now on the lock is under its id, with a token yet to be drawn. Calls in those who
-- wait under the same id; they needn't wait for others.
local function begin(id)
  whose = id
  redis.call('hdel', KEYS[1], 't')
  local waiting = redis.call('zrange', KEYS[3], 0, PURGE - 1)
  if not waiting[1] then return end
  for i, entry in ipairs(redis.call('hmget', KEYS[1], unpack(waiting))) do
    local channel, other = string.match(entry or '', '^%d+ %d+ (%S+) %d+ %S* (%S+)$')
    if other == id then tell(channel, waiting[i]) end
  end
end

local function hold(owner, weight, label, deadline, id)
  if owned and used == 0 then begin(id) end
  redis.call('zadd', KEYS[2], digits(deadline), owner)
  redis.call('hset', KEYS[1], owner, digits(weight) .. ' ' .. label)
  used = used + weight
end

-- Ends the shares of these owners. ZREM first: a write that needs no memory, so that a full server takes what follows.
local function drop(owners)
  redis.call('zrem', KEYS[2], unpack(owners))
  for _, entry in ipairs(redis.call('hmget', KEYS[1], unpack(owners))) do
    used = used - (entry and string.match(entry, '^%d+') or 0)
  end
  redis.call('hdel', KEYS[1], unpack(owners))
end

local function leave_line(owner)
  local stood = redis.call('zrem', KEYS[3], owner) == 1
  if stood then redis.call('hdel', KEYS[1], owner) end
  return stood
end

local function head() return redis.call('zrange', KEYS[3], 0, 0)[1] end

-- Ends what is over, then hands free shares to the head of the line for as long as it fits: nobody is passed by. It stops
-- at `me`, who asks at this moment. Gives when the head will be taken for dead, if only its silence is in the way, or now if there is more to do.
local function settle(me)
  local first = redis.call('zrange', KEYS[2], 0, 0, 'WITHSCORES')
  if not first[1] then
    -- Also if somebody deleted the holders: what they had is free.
    used = 0
  elseif tonumber(first[2]) <= now then
    local lapsed = {}
    first = redis.call('zrange', KEYS[2], 0, PURGE - 1, 'WITHSCORES')
    for i = 1, #first, 2 do
      if tonumber(first[i + 1]) > now then break end
      lapsed[#lapsed + 1] = first[i]
    end
    drop(lapsed)
  end
  for _ = 1, PURGE do
    local owner = head()
    if not owner or owner == me then return nil end
    local live, claim, channel, weight, label, id =
      string.match(redis.call('hget', KEYS[1], owner) or '', '^(%d+) (%d+) (%S+) (%d+) (%S*) ?(%S*)$')
    local room = weight and fits(weight, id)
    if not live or tonumber(live) <= now then
      leave_line(owner)
    elseif not room and not silent(live, now) then
      return nil
    elseif tell(channel, owner) then
      if not room then return nil end
      leave_line(owner)
      hold(owner, weight, label, now + claim, id)
    elseif silent(live, now) then
      leave_line(owner)
    else
      return silent_from(live)
    end
  end
  return now
end

local function is_empty()
  return redis.call('exists', KEYS[2]) == 0 and redis.call('exists', KEYS[3]) == 0
end

-- Writes down where the lock stands, with a life until the last share and the last window are over. PEXPIRE first, as
-- ZREM above.
local function keep(kind)
  if is_empty() then
    redis.call('del', KEYS[1])
    return
  end
  local last = tonumber(redis.call('zrange', KEYS[2], -1, -1, 'WITHSCORES')[2] or 0)
  local life = digits(math.max(1, math.max(last, window) - now + 1))
  local known = redis.call('pexpire', KEYS[1], life)
  redis.call('pexpire', KEYS[2], life)
  redis.call('hset', KEYS[1], 'k', kind, 'l', digits(limit), 'u', digits(used), 'w', digits(window))
  if owned then redis.call('hset', KEYS[1], 'o', whose or '') end
  if known == 0 then redis.call('pexpire', KEYS[1], life) end
end

-- {value, ms} of the holder that lapses first, or of the head of the line that can't be told (until it is `judged`): asking
-- again is worth it then. An empty value: nobody.
local function in_the_way(judged)
  local first = redis.call('zrange', KEYS[2], 0, 0, 'WITHSCORES')
  local owner, ends = first[1], tonumber(first[2])
  if not owner then
    if not judged then return { '', -1 } end
    owner, ends = head(), judged
  end
  local entry = redis.call('hget', KEYS[1], owner) or ''
  local label = string.match(entry, '^%d+ (%S*)$') or string.match(entry, '^%d+ %d+ %S+ %d+ (%S*)') or ''
  return { owner .. ':' .. label, math.max(0, math.min(ends, judged or ends) - now) }
end
