-- Library functions whose work grows with a number or table argument.
--
-- The hook that counts instructions does not run inside C: `string.rep("", 1 << 60)` and
-- `table.move({}, 1, 1 << 60, 2)` would never return. Functions that loop are written in Lua here,
-- so that every iteration is counted; those that only copy stay in C, after a check of the result's
-- length. This file runs before the policy and before `pcall` is removed.

local error, pcall, select, tostring, type = error, pcall, select, tostring, type
local tointeger = math.tointeger
local byte, format, pack, packsize, rep =
    string.byte, string.format, string.pack, string.packsize, string.rep
local concat, collect = table.concat, table.pack

-- The longest string that a library function returns, in bytes.
local LONGEST = 1 << 20
-- The longest layout of `string.pack` with parts of variable length, in bytes.
local LONGEST_LAYOUT = 256

local function check_length(name, length)
    if length > LONGEST then error(name .. ": the result is longer than 1 MiB", 3) end
end

local function integer(name, number)
    return tointeger(number) or error(name .. ": an integer is expected", 3)
end

function string.rep(text, count, separator)
    text, separator = tostring(text), tostring(separator or "")
    count = integer("string.rep", count)
    local turn = #text + #separator
    if turn == 0 or count < 1 then return "" end
    -- Not `count * turn`, which wraps.
    if count > LONGEST // turn then check_length("string.rep", LONGEST + 1) end
    return rep(text, count, separator)
end

function string.format(layout, ...)
    local length, values = #tostring(layout), collect(...)
    for i = 1, values.n do
        local value = values[i]
        if type(value) == "string" then length = length + #value end
    end
    check_length("string.format", length)
    return format(layout, ...)
end

function string.pack(layout, ...)
    local fixed, size = pcall(packsize, layout)
    if not fixed then
        -- Parts of variable length are as long as the arguments; `c` and a number pads.
        if #layout > LONGEST_LAYOUT then error("string.pack: the layout is too long", 2) end
        local digits = 0
        for i = 1, #layout do
            local code = byte(layout, i)
            digits = code >= 48 and code <= 57 and digits + 1 or 0
            if digits > 4 then error("string.pack: a size of more than 4 digits", 2) end
        end
        size = 0
    end
    check_length("string.pack", size)
    return pack(layout, ...)
end

function table.concat(list, separator, first, last)
    separator = tostring(separator or "")
    first = integer("table.concat", first or 1)
    last = integer("table.concat", last or #list)
    local length = 0
    for i = first, last do
        local value = list[i]
        local kind = type(value)
        if kind == "string" then
            length = length + #value + #separator
        elseif kind == "number" then
            length = length + 32 + #separator
        else
            error(format("table.concat: a %s at index %d", kind, i), 2)
        end
        check_length("table.concat", length)
    end
    return concat(list, separator, first, last)
end

function table.insert(list, ...)
    local length, arguments = #list, select("#", ...)
    if arguments == 1 then
        list[length + 1] = (...)
        return
    end
    if arguments ~= 2 then error("table.insert: two or three arguments are expected", 2) end
    local place, value = ...
    place = integer("table.insert", place)
    if place < 1 or place > length + 1 then
        error("table.insert: the position is out of bounds", 2)
    end
    for i = length, place, -1 do list[i + 1] = list[i] end
    list[place] = value
end

function table.remove(list, place)
    local length = #list
    place = integer("table.remove", place or length)
    if place ~= length and (place < 1 or place > length + 1) then
        error("table.remove: the position is out of bounds", 2)
    end
    local value = list[place]
    for i = place, length - 1 do list[i] = list[i + 1] end
    list[place < length and length or place] = nil
    return value
end

function table.move(from, first, last, place, to)
    to = to or from
    first, last = integer("table.move", first), integer("table.move", last)
    place = integer("table.move", place)
    if last < first then return to end
    local more = last - first
    if more < 0 then error("table.move: too many elements", 2) end
    if place > last or place <= first or to ~= from then
        for i = 0, more do to[place + i] = from[first + i] end
    else
        for i = more, 0, -1 do to[place + i] = from[first + i] end
    end
    return to
end

-- A merge sort: it terminates even with an inconsistent order function.
function table.sort(list, before)
    before = before or function(a, b) return a < b end
    local length = #list
    local from, to = {}, {}
    for i = 1, length do from[i] = list[i] end
    local width = 1
    while width < length do
        for start = 1, length, 2 * width do
            local left, right = start, start + width
            local middle, stop = right, right + width
            if middle > length + 1 then middle = length + 1 end
            if stop > length + 1 then stop = length + 1 end
            for i = start, stop - 1 do
                if left < middle and (right >= stop or not before(from[right], from[left])) then
                    to[i], left = from[left], left + 1
                else
                    to[i], right = from[right], right + 1
                end
            end
        end
        from, to, width = to, from, 2 * width
    end
    for i = 1, length do list[i] = from[i] end
end
