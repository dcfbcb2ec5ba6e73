-- Whether a token is behind the one that the resource has seen: -1, an error, or nil. Compared as digits: a number in Lua is exact only to 2^53.
local function behind(resource, token)
  if not string.find(token, '^[1-9]%d*$') or #token > 20 then
    return redis.error_reply('ERR the fencing token is a decimal number above 0')
  end
  local seen = redis.call('HGET', resource, 'fence')
  if seen and (#seen > #token or (#seen == #token and seen > token)) then return -1 end
end
