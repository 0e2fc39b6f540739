"""Operations that scripts use now and then: shifts of bits, running extremes, products, parts, statistics, windows."""
