x1 = objects(I, T, F, T)
x2 = argmax(x1, size)
O = cover(I, x2)
